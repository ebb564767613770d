// Case <-> JSON, by the tables of fields. Types, names and bounds are checked here, what needs more
// in case_check.cc.
#include "verify/case/case_json.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "verify/case/fields.h"

// GCC 12 takes the members of other structs, which no row has, for members beyond the end of one.
#pragma GCC diagnostic ignored "-Warray-bounds"

namespace shardproof {
namespace {

using nlohmann::json;

constexpr std::streamoff kCaseFileBytesMax = 64 << 20;

// ---- Reading: one function for each type that a member has --------------------------------------

template <typename Struct>
void ReadFields(FieldReader& fields, const FieldTable<Struct>& table, Struct& target);

/// An object that is all of `value`.
template <typename Struct>
void ReadObject(const JsonValue& value, const std::string& pointer, Complaint& complaint,
                const FieldTable<Struct>& table, Struct& target) {
  FieldReader fields(value, pointer, complaint);
  ReadFields(fields, table, target);
  fields.Finish();
}

/// An object that is a field.
template <typename Struct>
void ReadMember(FieldReader& fields, const char* name, const FieldTable<Struct>& table,
                Struct& target) {
  const std::optional<JsonValue> value = fields.Object(name);
  if (value) ReadObject(*value, fields.PointerTo(name), fields.complaint(), table, target);
}

/// A field that is an array of objects.
template <typename Struct>
void ReadMembers(FieldReader& fields, const char* name, const FieldTable<Struct>& table,
                 std::vector<Struct>& target) {
  ForEach(fields, name, [&](const JsonValue& value, const std::string& pointer) {
    ReadObject(value, pointer, fields.complaint(), table, target.emplace_back());
  });
}

void CheckReal(double value, const RealBounds& bounds, const std::string& pointer,
               Complaint& complaint) {
  const bool is_low = bounds.excludes_low ? !(value > bounds.low) : !(value >= bounds.low);
  if (!is_low && value <= bounds.high) return;
  complaint.Say(pointer, fmt::format("expected {}, found {}", RealInWords(bounds), value));
}

void Read(FieldReader& fields, const FieldRow& row, bool& target) {
  fields.Required(row.name, target);
}

void Read(FieldReader& fields, const FieldRow& row, int64_t& target) {
  fields.Required(row.name, target, LowOf(row), HighOf(row));
}

void Read(FieldReader& fields, const FieldRow& row, uint64_t& target) {
  fields.Required(row.name, target, row.integers.low, row.integers.high);
}

void Read(FieldReader& fields, const FieldRow& row, double& target) {
  double read = 0;
  fields.Required(row.name, read);
  if (fields.ok()) CheckReal(read, row.reals, fields.PointerTo(row.name), fields.complaint());
  if (fields.ok()) target = read;
}

void Read(FieldReader& fields, const FieldRow& row, std::string& target) {
  std::string read;
  fields.Required(row.name, read);
  if (!fields.ok()) return;
  if (row.former.first != nullptr && read == row.former.first) read = row.former.second;
  if (row.names != nullptr) return fields.CheckName(row.name, row.names(), read, target);
  target = std::move(read);
}

void Read(FieldReader& fields, const FieldRow& row, std::vector<int64_t>& target) {
  fields.Required(row.name, target, LowOf(row), HighOf(row));
}

void Read(FieldReader& fields, const FieldRow& row, std::vector<double>& target) {
  fields.Required(row.name, target);
  for (size_t i = 0; i < target.size() && fields.ok(); ++i) {
    CheckReal(target[i], row.reals, fmt::format("{}/{}", fields.PointerTo(row.name), i),
              fields.complaint());
  }
}

void Read(FieldReader& fields, const FieldRow& row, std::vector<std::string>& target) {
  fields.Required(row.name, target);
}

void Read(FieldReader& fields, const FieldRow& row, std::map<std::string, std::string>& target) {
  fields.Required(row.name, target);
}

void Read(FieldReader& fields, const FieldRow& row, std::vector<std::vector<std::string>>& target) {
  ForEach(fields, row.name, [&](const JsonValue& group, const std::string& pointer) {
    ParseStrings(group, pointer, fields.complaint(), target.emplace_back(), "an array of names");
  });
}

void Read(FieldReader& fields, const FieldRow& row, std::vector<AxisCase>& target) {
  ReadMembers(fields, row.name, AxisFields(), target);
}

void Read(FieldReader& fields, const FieldRow& row, std::vector<FaultCase>& target) {
  ReadMembers(fields, row.name, FaultFields(), target);
}

void Read(FieldReader& fields, const FieldRow& row, std::vector<TensorCase>& target) {
  ReadMembers(fields, row.name, TensorFields(), target);
}

void Read(FieldReader& fields, const FieldRow& row, std::vector<std::vector<StoredCase>>& target) {
  ForEach(fields, row.name, [&](const JsonValue& value, const std::string& pointer) {
    auto& way = target.emplace_back();
    const auto read_key = [&](const JsonValue& key, const std::string& at) {
      ReadObject(key, at, fields.complaint(), StoredFields(), way.emplace_back());
    };
    ForEachElement(value, pointer, fields.complaint(), read_key, "an array of keys");
  });
}

void Read(FieldReader& fields, const FieldRow& row, std::optional<RopeCase>& target) {
  ReadMember(fields, row.name, RopeFields(), target.emplace());
}

void Read(FieldReader& fields, const FieldRow& row, std::optional<LoraCase>& target) {
  ReadMember(fields, row.name, LoraFields(), target.emplace());
}

void Read(FieldReader& fields, const FieldRow& row, TrainingCase& target) {
  ReadMember(fields, row.name, TrainingFields(), target);
}

void Read(FieldReader& fields, const FieldRow& row, ModelCase& target) {
  const std::optional<JsonValue> value = fields.Object(row.name);
  if (!value) return;
  FieldReader model(*value, fields.PointerTo(row.name), fields.complaint());
  const bool from_checkpoint = model.Known("checkpoint");
  const bool synthetic = model.Known("tensors");
  if (model.ok() && from_checkpoint == synthetic) {
    model.complaint().Say(model.pointer(),
                          fmt::format("expected exactly one of \"checkpoint\" and \"tensors\", "
                                      "found {}",
                                      synthetic ? "both" : "neither"));
  }
  const ModelSource source = synthetic ? ModelSource::kSynthetic : ModelSource::kCheckpoint;
  ReadFields(model, FieldsOfModelFrom(source), target);
  model.Finish();
  if (from_checkpoint && target.checkpoint.empty()) {
    model.complaint().Expected(model.PointerTo("checkpoint"), "the path of a directory", "");
  }
  if (synthetic && target.tensors.empty()) {
    model.complaint().Say(model.PointerTo("tensors"), "expected at least one tensor, found none");
  }
}

template <typename Struct>
void ReadFields(FieldReader& fields, const FieldTable<Struct>& table, Struct& target) {
  for (const Field<Struct>& field : table) {
    if (!field.row.required && !fields.Known(field.row.name)) continue;
    std::visit([&](auto member) { Read(fields, field.row, target.*member); }, field.member);
  }
}

// ---- Writing ------------------------------------------------------------------------------------

template <typename Struct>
json FieldsToJson(const FieldTable<Struct>& table, const Struct& from);

template <typename Struct>
json ListToJson(const FieldTable<Struct>& table, const std::vector<Struct>& list) {
  json out = json::array();
  for (const Struct& one : list) out.push_back(FieldsToJson(table, one));
  return out;
}

/// Numbers, names, and lists of them.
template <typename Value>
json ToJson(const Value& value) {
  return value;
}

json ToJson(const std::vector<AxisCase>& mesh) { return ListToJson(AxisFields(), mesh); }
json ToJson(const std::vector<FaultCase>& faults) { return ListToJson(FaultFields(), faults); }
json ToJson(const std::vector<TensorCase>& tensors) { return ListToJson(TensorFields(), tensors); }

json ToJson(const std::vector<std::vector<StoredCase>>& ways) {
  json out = json::array();
  for (const auto& way : ways) out.push_back(ListToJson(StoredFields(), way));
  return out;
}

json ToJson(const std::optional<RopeCase>& rope) {
  return rope ? FieldsToJson(RopeFields(), *rope) : json();
}

json ToJson(const std::optional<LoraCase>& lora) {
  return lora ? FieldsToJson(LoraFields(), *lora) : json();
}

json ToJson(const TrainingCase& training) { return FieldsToJson(TrainingFields(), training); }

json ToJson(const ModelCase& model) {
  const bool synthetic = model.checkpoint.empty();
  const ModelSource source = synthetic ? ModelSource::kSynthetic : ModelSource::kCheckpoint;
  return FieldsToJson(FieldsOfModelFrom(source), model);
}

template <typename Struct>
json FieldsToJson(const FieldTable<Struct>& table, const Struct& from) {
  static const Struct usual;
  json out = json::object();
  for (const Field<Struct>& field : table) {
    const auto write = [&](auto member) {
      if (field.row.left_out_as_usual && from.*member == usual.*member) return;
      out[field.row.name] = ToJson(from.*member);
    };
    std::visit(write, field.member);
  }
  return out;
}

}  // namespace

TensorCase ParseTensorCase(const JsonValue& value, const std::string& pointer,
                           Complaint& complaint) {
  TensorCase tensor;
  ReadObject(value, pointer, complaint, TensorFields(), tensor);
  return tensor;
}

json TensorCaseToJson(const TensorCase& tensor) { return FieldsToJson(TensorFields(), tensor); }

json AxesToJson(const std::vector<AxisCase>& mesh) { return ToJson(mesh); }

json CaseToJson(const Case& c) { return FieldsToJson(CaseFields(), c); }

Case ParseFieldsOfCase(const JsonValue& value, Complaint& complaint) {
  Case parsed;
  ReadObject(value, "", complaint, CaseFields(), parsed);
  return parsed;
}

namespace {

Case ParseAndCheck(const JsonValue& value, Complaint& complaint) {
  Case parsed = ParseFieldsOfCase(value, complaint);
  if (complaint.ok()) CheckCase(parsed, complaint);
  return parsed;
}

}  // namespace

Result<Case> ParseCase(const JsonValue& value) {
  Complaint complaint;
  Case parsed = ParseAndCheck(value, complaint);
  SP_TRY(complaint.ToStatus());
  return parsed;
}

Result<Case> ParseCase(const json& value, Complaint& complaint) {
  simdjson::dom::parser parser;
  SP_ASSIGN(const JsonValue parsed, ParseJson(parser, DumpJson(value)));
  return ParseAndCheck(parsed, complaint);
}

Result<Case> ParseCaseText(const std::string& text) {
  simdjson::dom::parser parser;
  SP_ASSIGN(const JsonValue value, ParseJson(parser, text));
  return ParseCase(value);
}

Result<Case> ParseCase(const json& value) { return ParseCaseText(DumpJson(value)); }

Result<Case> ReadCaseFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return BadInput(fmt::format("case {}: {}", path, std::strerror(errno)));
  std::ostringstream text;
  std::string chunk(1 << 16, '\0');
  for (std::streamoff read = 0; file.read(chunk.data(), chunk.size()) || file.gcount() > 0;) {
    read += file.gcount();
    if (read > kCaseFileBytesMax) {
      return BadInput(fmt::format("case {}: expected at most {} bytes, found more", path,
                                  static_cast<int64_t>(kCaseFileBytesMax)));
    }
    text.write(chunk.data(), file.gcount());
  }
  if (file.bad()) return BadInput(fmt::format("case {}: {}", path, std::strerror(errno)));
  Result<Case> parsed = ParseCaseText(text.str());
  if (!parsed.ok()) return parsed.error().While("case " + path);
  return parsed;
}

}  // namespace shardproof
