// The JSON schema of a case, made from the tables of fields.
#include "verify/case/case_schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "verify/case/fields.h"
#include "verify/case/names.h"

namespace shardproof {
namespace {

using nlohmann::ordered_json;

constexpr const char* kDescription =
    "The one input of a run: everything that every rank does follows from it, so it is all that "
    "`replay` needs. Unknown fields are refused, so that a typo is not a silent default. Integers "
    "are written without a fraction. Checked by the parser alone, because a schema cannot say it: "
    "the product of mesh sizes, bytes of all tensors (at most 2^40), unique tensor names, names "
    "that are both module and tensor, that ties and missing name tensors, that tied tensors have "
    "one dtype and shape, and that an unexpected name is no tensor of the model.";

/// What one field of a tensor asks of another.
constexpr const char* kBetweenFieldsOfTensor = R"([
    {"if": {"properties": {"kind": {"const": "parameter"}}},
     "then": {"properties": {"persistent": {"const": true}}}},
    {"if": {"required": ["rope"]},
     "then": {"required": ["kind", "persistent"],
              "properties": {"kind": {"const": "buffer"}, "persistent": {"const": false},
                             "dtype": {"const": "F32"},
                             "shape": {"minItems": 1, "maxItems": 1}}}}])";

ordered_json Reference(const std::string& name) { return {{"$ref", "#/$defs/" + name}}; }

ordered_json ListOf(ordered_json items) { return {{"type", "array"}, {"items", std::move(items)}}; }

// ---- One function for each type that a member has -----------------------------------------------

template <typename Integer>
ordered_json IntegerType(uint64_t low, Integer high) {
  if (low == static_cast<uint64_t>(high)) return {{"const", low}};
  return {{"type", "integer"}, {"minimum", low}, {"maximum", high}};
}

ordered_json RealType(const RealBounds& bounds) {
  ordered_json type = {{"type", "number"}};
  type[bounds.excludes_low ? "exclusiveMinimum" : "minimum"] = bounds.low;
  if (std::isfinite(bounds.high)) type["maximum"] = bounds.high;
  return type;
}

ordered_json TypeOf(const FieldRow&, const bool*) { return {{"type", "boolean"}}; }

ordered_json TypeOf(const FieldRow& row, const int64_t*) {
  return IntegerType(row.integers.low, HighOf(row));
}

ordered_json TypeOf(const FieldRow& row, const uint64_t*) {
  return IntegerType(row.integers.low, row.integers.high);
}

ordered_json TypeOf(const FieldRow& row, const double*) { return RealType(row.reals); }

ordered_json TypeOf(const FieldRow& row, const std::string*) {
  if (row.names == nullptr) return {{"type", "string"}};
  ordered_json names = row.names();
  if (row.former.first != nullptr) names.push_back(row.former.first);
  return {{"enum", std::move(names)}};
}

ordered_json TypeOf(const FieldRow&, const std::map<std::string, std::string>*) {
  return {{"type", "object"}, {"additionalProperties", {{"type", "string"}}}};
}

ordered_json TypeOf(const FieldRow&, const AxisCase*) { return Reference("axis"); }
ordered_json TypeOf(const FieldRow&, const FaultCase*) { return Reference("fault"); }
ordered_json TypeOf(const FieldRow&, const TensorCase*) { return Reference("tensor"); }
ordered_json TypeOf(const FieldRow&, const std::optional<RopeCase>*) { return Reference("rope"); }
ordered_json TypeOf(const FieldRow&, const std::optional<LoraCase>*) { return Reference("lora"); }
ordered_json TypeOf(const FieldRow&, const TrainingCase*) { return Reference("training"); }

/// A way to keep a tensor has a key or more.
ordered_json TypeOf(const FieldRow&, const std::vector<StoredCase>*) {
  ordered_json way = ListOf(Reference("stored"));
  way["minItems"] = 1;
  return way;
}

ordered_json TypeOf(const FieldRow&, const ModelCase*) {
  return {{"oneOf", {Reference("from_checkpoint"), Reference("synthetic")}}};
}

template <typename Element>
ordered_json TypeOf(const FieldRow& row, const std::vector<Element>*) {
  return ListOf(TypeOf(row, static_cast<const Element*>(nullptr)));
}

// ---- Defaults: of numbers, names, and lists of them ---------------------------------------------

template <typename Value>
ordered_json DefaultOf(const Value& value) {
  return value;
}

ordered_json DefaultOf(const std::vector<AxisCase>&) { return ordered_json::array(); }
ordered_json DefaultOf(const std::vector<FaultCase>&) { return ordered_json::array(); }
ordered_json DefaultOf(const std::vector<TensorCase>&) { return ordered_json::array(); }
ordered_json DefaultOf(const std::vector<std::vector<StoredCase>>&) {
  return ordered_json::array();
}
ordered_json DefaultOf(const std::optional<RopeCase>&) { return {}; }
ordered_json DefaultOf(const std::optional<LoraCase>&) { return {}; }
ordered_json DefaultOf(const TrainingCase&) { return {}; }
ordered_json DefaultOf(const ModelCase&) { return {}; }

// ---- Tables -------------------------------------------------------------------------------------

template <typename Struct>
ordered_json SchemaOf(const FieldRow& row, const Member<Struct>& member) {
  static const Struct usual{};
  const auto type = [&](auto pointer) { return TypeOf(row, &(usual.*pointer)); };
  const auto otherwise = [&](auto pointer) { return DefaultOf(usual.*pointer); };
  ordered_json schema = std::visit(type, member);
  schema["description"] = row.doc;
  const ordered_json value = std::visit(otherwise, member);
  // A text that may be left out, but not be empty, has none.
  const bool is_absent = value.is_null() || (row.left_out_as_usual && value == "");
  if (!row.required && !is_absent) schema["default"] = value;
  schema.update(ordered_json::parse(row.schema));
  return schema;
}

template <typename Struct>
ordered_json SchemaOf(const FieldTable<Struct>& table) {
  ordered_json properties = ordered_json::object();
  ordered_json required = ordered_json::array();
  for (const Field<Struct>& field : table) {
    properties[field.row.name] = SchemaOf<Struct>(field.row, field.member);
    if (field.row.required) required.push_back(field.row.name);
  }
  return {{"type", "object"},
          {"properties", std::move(properties)},
          {"required", std::move(required)},
          {"additionalProperties", false}};
}

ordered_json TensorSchema() {
  ordered_json schema = SchemaOf(TensorFields());
  schema["allOf"] = ordered_json::parse(kBetweenFieldsOfTensor);
  return schema;
}

// ---- For people ---------------------------------------------------------------------------------

std::string TypeInWords(const FieldRow& row, const ordered_json& schema) {
  if (schema.contains("const")) return fmt::format("always {}", schema["const"].dump());
  if (schema.contains("enum")) return "one of " + ListNames(row.names());
  const std::string type = schema.value("type", "object");
  if (type == "integer") {
    return fmt::format("an integer from {} to {}", schema["minimum"].dump(),
                       schema["maximum"].dump());
  }
  if (type == "number") return RealInWords(row.reals);
  if (type == "boolean") return "true or false";
  if (type == "array") return "a list";
  return type == "string" ? "a text" : "an object";
}

std::string DrawInWords(const FieldDraw& draw) {
  switch (draw.how) {
    case FieldDraw::How::kNever:
      return "it keeps its default";
    case FieldDraw::How::kFlag:
      return fmt::format("true in {} of 100", draw.percent);
    case FieldDraw::How::kValue: {
      std::vector<std::string> values;
      for (const auto& value : draw.values) {
        std::visit([&](const auto& one) { values.push_back(fmt::format("{}", one)); }, value);
      }
      const char* choice = values.size() > 1 ? "one of " : "";
      return fmt::format("in {} of 100, {}{}", draw.percent, choice, fmt::join(values, ", "));
    }
    case FieldDraw::How::kAnyName:
      return "any of these";
    case FieldDraw::How::kByHand:
      return "drawn by a function of its own";
    case FieldDraw::How::kWithAnother:
      return "drawn with the field that it belongs to";
  }
  return "";
}

template <typename Struct>
void Describe(const std::string& parent, const FieldTable<Struct>& table, std::string& text) {
  for (const Field<Struct>& field : table) {
    const FieldRow& row = field.row;
    const ordered_json schema = SchemaOf<Struct>(row, field.member);
    text += fmt::format("{}{}\n  {}\n  {}", parent, row.name, row.doc, TypeInWords(row, schema));
    if (row.required) text += ", required";
    if (schema.contains("default")) text += fmt::format("; default: {}", schema["default"].dump());
    if (row.option.name != nullptr) text += fmt::format("; option: {}", row.option.name);
    text += fmt::format("\n  generated cases: {}", DrawInWords(row.draw));
    if (row.feature.name != nullptr) {
      text += fmt::format("; counted as \"{}{}\"", row.feature.name,
                          row.feature.each_name ? ".NAME" : "");
    }
    text += "\n";
  }
}

}  // namespace

std::string FieldsText() {
  std::string text;
  Describe("", CaseFields(), text);
  Describe("mesh/N/", AxisFields(), text);
  Describe("faults/N/", FaultFields(), text);
  Describe("training/", TrainingFields(), text);
  Describe("model/", ModelFields(), text);
  Describe("model/lora/", LoraFields(), text);
  Describe("model/tensors/N/", TensorFields(), text);
  Describe("model/tensors/N/stored/N/N/", StoredFields(), text);
  Describe("model/tensors/N/rope/", RopeFields(), text);
  return text;
}

std::string CaseSchemaText() {
  ordered_json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                         {"$id", "urn:shardproof:schema:case:1"},
                         {"title", "Case"},
                         {"description", kDescription}};
  schema.update(SchemaOf(CaseFields()));
  schema["$defs"] = {{"axis", SchemaOf(AxisFields())},
                     {"fault", SchemaOf(FaultFields())},
                     {"training", SchemaOf(TrainingFields())},
                     {"from_checkpoint", SchemaOf(FieldsOfModelFrom(ModelSource::kCheckpoint))},
                     {"synthetic", SchemaOf(FieldsOfModelFrom(ModelSource::kSynthetic))},
                     {"lora", SchemaOf(LoraFields())},
                     {"tensor", TensorSchema()},
                     {"stored", SchemaOf(StoredFields())},
                     {"rope", SchemaOf(RopeFields())}};
  return schema.dump(2) + "\n";
}

}  // namespace shardproof
