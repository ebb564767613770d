// Every member of a case has a row, and every row its effect on codec and schema. What generator,
// features, shrinker, command line and Job make of rows is tested where they are.
#include "verify/case/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "verify/case/case_json.h"
#include "verify/case/case_schema.h"
#include "verify/case/fixture_fields.h"

namespace shardproof {
namespace {

using nlohmann::json;
using testing::HasSubstr;

/// Each of these members has one row, and no other has any.
template <typename Struct>
void ExpectRows(const FieldTable<Struct>& table, const Struct& of,
                const std::set<const void*>& members) {
  std::multiset<const void*> rows;
  for (const Field<Struct>& field : table) {
    std::visit([&](auto member) { rows.insert(&(of.*member)); }, field.member);
  }
  EXPECT_EQ(rows, std::multiset<const void*>(members.begin(), members.end()));
}

// These do not compile when a struct has another member: it needs a row, and a name here.
TEST(Fields, EveryMemberOfACaseAndItsTrainingHasARow) {
  const Case c;
  const auto& [schema, why, seed, subject, model, mesh, strategy, transport, device, optimizer,
               bucket, device_bytes, file, leftovers, saves, resume, steps, training, options,
               faults, as_stated, bug, slack, deadline] = c;
  ExpectRows(
      CaseFields(), c,
      {&schema, &why,       &seed,    &subject,      &model,     &mesh,      &strategy, &transport,
       &device, &optimizer, &bucket,  &device_bytes, &file,      &leftovers, &saves,    &resume,
       &steps,  &training,  &options, &faults,       &as_stated, &bug,       &slack,    &deadline});
  const TrainingCase t;
  const auto& [clip_norm, by_group, moments, masters, unfreeze, unfrozen, without, micro_batches,
               reduce, samples, loss_scale, average, offload, overlap, save_every, keep, async,
               format, gathered, split_fused, learning_rate, rate_decay, weight_decay, epsilon] = t;
  ExpectRows(TrainingFields(), t,
             {&clip_norm, &by_group,      &moments,       &masters,    &unfreeze,     &unfrozen,
              &without,   &micro_batches, &reduce,        &samples,    &loss_scale,   &average,
              &offload,   &overlap,       &save_every,    &keep,       &async,        &format,
              &gathered,  &split_fused,   &learning_rate, &rate_decay, &weight_decay, &epsilon});
}

TEST(Fields, EveryMemberOfAModelAndItsPartsHasARow) {
  const ModelCase m;
  const auto& [checkpoint, factory, adapter, lora, scratch, tensors, ties, missing, unexpected,
               files, stray, format, tied_names] = m;
  ExpectRows(ModelFields(), m,
             {&checkpoint, &factory, &adapter, &lora, &scratch, &tensors, &ties, &missing,
              &unexpected, &files, &stray, &format, &tied_names});
  const TensorCase t;
  const auto& [name, kind, persistent, dtype, shape, strides, grad, attributes, init, values, real,
               rope, stored, stored_as] = t;
  ExpectRows(TensorFields(), t,
             {&name, &kind, &persistent, &dtype, &shape, &strides, &grad, &attributes, &init,
              &values, &real, &rope, &stored, &stored_as});
  const RopeCase r;
  const auto& [type, theta, dim, factor, low, high, original, fast, slow, truncate, factors,
               rotated] = r;
  ExpectRows(RopeFields(), r,
             {&type, &theta, &dim, &factor, &low, &high, &original, &fast, &slow, &truncate,
              &factors, &rotated});
  const LoraCase l;
  const auto& [rank, targets] = l;
  ExpectRows(LoraFields(), l, {&rank, &targets});
  const StoredCase s;
  const auto& [key, stored_shape] = s;
  ExpectRows(StoredFields(), s, {&key, &stored_shape});
  const AxisCase a;
  const auto& [axis, size, over] = a;
  ExpectRows(AxisFields(), a, {&axis, &size, &over});
  const FaultCase f;
  const auto& [id, where] = f;
  ExpectRows(FaultFields(), f, {&id, &where});
}

// ---- Another value than the one that is there, for each type ------------------------------------

bool Other(const FieldRow&, bool value) { return !value; }
int64_t Other(const FieldRow& row, int64_t value) {
  return value < HighOf(row) ? value + 1 : LowOf(row);
}
uint64_t Other(const FieldRow& row, uint64_t value) {
  return value < row.integers.high ? value + 1 : row.integers.low;
}
double Other(const FieldRow& row, double value) {
  return value + 1 <= row.reals.high ? value + 1 : row.reals.low;
}
std::string Other(const FieldRow& row, const std::string& value) {
  if (row.names == nullptr) return value + "x";
  return std::string(value == row.names()[0] ? row.names()[1] : row.names()[0]);
}

/// Of what is a struct, or a list of them.
template <typename Value>
Value Other(const FieldRow&, Value value) {
  if constexpr (std::is_same_v<Value, std::map<std::string, std::string>>) value["a"] = "b";
  if constexpr (std::is_same_v<Value, std::vector<AxisCase>>) value.push_back({"tp", 2});
  if constexpr (std::is_same_v<Value, std::vector<FaultCase>>) value.push_back({"file/rot", "1"});
  if constexpr (std::is_same_v<Value, std::vector<TensorCase>>) value.push_back({.name = "more"});
  if constexpr (std::is_same_v<Value, ModelCase>) value.unexpected.push_back("more");
  if constexpr (std::is_same_v<Value, TrainingCase>) value.keep += 1;
  if constexpr (std::is_same_v<Value, std::optional<RopeCase>>) value = RopeCase{.theta = 5};
  if constexpr (std::is_same_v<Value, std::optional<LoraCase>>) value = LoraCase{3, {"q"}};
  if constexpr (std::is_same_v<Value, std::vector<double>>) value.push_back(2);
  if constexpr (std::is_same_v<Value, std::vector<int64_t>>) value.push_back(2);
  if constexpr (std::is_same_v<Value, std::vector<std::string>>) value.push_back("more");
  if constexpr (std::is_same_v<Value, std::vector<std::vector<std::string>>>)
    value.push_back({"a", "b"});
  if constexpr (std::is_same_v<Value, std::vector<std::vector<StoredCase>>>)
    value.push_back({{"key", {1}}});
  return value;
}

Case Synthetic() {
  Case c;
  c.mesh = {{"dp_shard", 2}};
  c.faults = {{"rank/kill", "0@built"}};
  c.model.tensors = {{.name = "a", .shape = {3}}};
  c.model.tensors[0].rope = RopeCase();
  c.model.tensors[0].stored = {{{"b", {3}}}};
  return c;
}

Case OfCheckpoint() {
  Case c;
  c.mesh = {{"dp_shard", 2}};
  c.model.checkpoint = "dir";
  c.model.lora = LoraCase{.targets = {"q"}};
  return c;
}

/// What the codec makes of it; the complaint says what is wrong with it, if anything.
Case ReadAgain(const json& value, Complaint& complaint) {
  simdjson::dom::parser parser;
  return ParseFieldsOfCase(ParseJson(parser, value.dump()).value(), complaint);
}

/// Calls visit(base case, table, place of the table's struct in a case) for every table.
template <typename Visit>
void ForEachTable(Visit visit) {
  visit(Synthetic(), CaseFields(), [](Case& c) -> Case& { return c; });
  visit(Synthetic(), TrainingFields(), [](Case& c) -> TrainingCase& { return c.training; });
  visit(Synthetic(), FieldsOfModelFrom(ModelSource::kSynthetic),
        [](Case& c) -> ModelCase& { return c.model; });
  visit(OfCheckpoint(), FieldsOfModelFrom(ModelSource::kCheckpoint),
        [](Case& c) -> ModelCase& { return c.model; });
  visit(OfCheckpoint(), LoraFields(), [](Case& c) -> LoraCase& { return *c.model.lora; });
  visit(Synthetic(), TensorFields(), [](Case& c) -> TensorCase& { return c.model.tensors[0]; });
  visit(Synthetic(), RopeFields(), [](Case& c) -> RopeCase& { return *c.model.tensors[0].rope; });
  visit(Synthetic(), StoredFields(),
        [](Case& c) -> StoredCase& { return c.model.tensors[0].stored[0][0]; });
  visit(Synthetic(), AxisFields(), [](Case& c) -> AxisCase& { return c.mesh[0]; });
  visit(Synthetic(), FaultFields(), [](Case& c) -> FaultCase& { return c.faults[0]; });
}

TEST(Fields, KeepAnotherValueThroughTheCodec) {
  ForEachTable([](const Case& base, const auto& table, auto part_of) {
    for (const auto& field : table) {
      Case changed = base;
      std::visit(
          [&](auto member) {
            auto& value = part_of(changed).*member;
            value = Other(field.row, value);
          },
          field.member);
      const bool has_one_value = field.row.name == std::string("schema");
      EXPECT_EQ(changed == base, has_one_value) << field.row.name;
      Complaint complaint;
      const Case again = ReadAgain(CaseToJson(changed), complaint);
      EXPECT_EQ(complaint.text(), "") << field.row.name;
      EXPECT_TRUE(again == changed) << field.row.name << " of " << CaseToJson(changed);
    }
  });
}

/// What the codec says when a number of a row of a struct is `value`.
template <typename Struct, typename Number, typename Part>
std::string RefusalOf(Case base, Number Struct::*member, Part part_of, Number value) {
  part_of(base).*member = value;
  Complaint complaint;
  ReadAgain(CaseToJson(base), complaint);
  return complaint.text();
}

TEST(Fields, AreRefusedBelowAndAboveTheirBounds) {
  size_t refused = 0;
  const auto expect = [&](const std::string& text, const FieldRow& row) {
    EXPECT_THAT(text, HasSubstr(std::string("/") + row.name + ": expected "));
    EXPECT_THAT(text, HasSubstr(", found "));
    ++refused;
  };
  ForEachTable([&](const Case& base, const auto& table, auto part_of) {
    for (const auto& field : table) {
      const FieldRow& row = field.row;
      const auto check = [&](auto member) {
        using Number = std::decay_t<decltype(part_of(const_cast<Case&>(base)).*member)>;
        if constexpr (std::is_same_v<Number, int64_t> || std::is_same_v<Number, uint64_t>) {
          const auto low = static_cast<Number>(row.integers.low);
          const auto high = static_cast<Number>(row.integers.high);
          if (low > 0) expect(RefusalOf(base, member, part_of, Number(low - 1)), row);
          if (high != std::numeric_limits<Number>::max() && high != Number(-1))
            expect(RefusalOf(base, member, part_of, Number(high + 1)), row);
        }
        if constexpr (std::is_same_v<Number, double>) {
          expect(RefusalOf(base, member, part_of, row.reals.low - 1), row);
          if (row.reals.excludes_low) expect(RefusalOf(base, member, part_of, row.reals.low), row);
        }
        if constexpr (std::is_same_v<Number, std::string>) {
          if (row.names != nullptr)
            expect(RefusalOf(base, member, part_of, std::string("no such name")), row);
        }
      };
      std::visit(check, field.member);
    }
  });
  EXPECT_GT(refused, 40u);
}

TEST(Fields, SayWhatTheyAreInASentence) {
  ForEachTable([](const Case&, const auto& table, auto) {
    for (const auto& field : table) {
      const std::string doc = field.row.doc;
      ASSERT_FALSE(doc.empty()) << field.row.name;
      EXPECT_EQ(doc.back(), '.') << field.row.name;
      EXPECT_THAT(FieldsText(), HasSubstr(std::string(field.row.name) + "\n  " + doc));
    }
  });
}

TEST(Fields, OfOneCaseAreFoundByTheirPath) {
  Case c;
  EXPECT_EQ(std::get<int64_t*>(FieldAt(c, "training/keep").value), &c.training.keep);
  EXPECT_EQ(std::get<int64_t*>(FieldAt(c, "model/files").value), &c.model.files);
  for (const FieldOfCase& field : FieldsOf(c)) EXPECT_TRUE(IsUsual(field)) << field.path;
  c.training.keep = 7;
  EXPECT_FALSE(IsUsual(FieldAt(c, "training/keep")));
  SetToDefault(FieldAt(c, "training/keep"));
  EXPECT_TRUE(c == Case());
}

TEST(CaseSchema, IsTheFileThatOthersCheckCasesBy) {
  std::ifstream file(SHARDPROOF_CASE_SCHEMA);
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(text.str() == CaseSchemaText())
      << "write it anew: shardproof list fields --schema > fixtures/schema/case.schema.json";
}

TEST(CaseSchema, HasEveryRow) {
  const json schema = json::parse(CaseSchemaText());
  const auto expect = [](const json& object, const auto& table) {
    EXPECT_EQ(object["properties"].size(), table.size());
    for (const auto& field : table) {
      ASSERT_TRUE(object["properties"].contains(field.row.name)) << field.row.name;
      EXPECT_EQ(object["properties"][field.row.name]["description"], field.row.doc);
    }
  };
  const json& parts = schema["$defs"];
  expect(schema, CaseFields());
  expect(parts["training"], TrainingFields());
  expect(parts["from_checkpoint"], FieldsOfModelFrom(ModelSource::kCheckpoint));
  expect(parts["synthetic"], FieldsOfModelFrom(ModelSource::kSynthetic));
  expect(parts["lora"], LoraFields());
  expect(parts["tensor"], TensorFields());
  expect(parts["rope"], RopeFields());
  expect(parts["stored"], StoredFields());
  expect(parts["axis"], AxisFields());
  expect(parts["fault"], FaultFields());
}

}  // namespace
}  // namespace shardproof
