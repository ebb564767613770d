// oracle.json: what the verifier's own reader and formulas said.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "verify/case/case_json.h"
#include "verify/evidence/line_file.h"
#include "verify/evidence/line_reader.h"
#include "verify/evidence/reader.h"
#include "verify/evidence/records_json.h"

namespace shardproof {
namespace {

using nlohmann::json;

constexpr size_t kOracleBytesMax = size_t{1} << 30;
constexpr int64_t kSizeMax = int64_t{1} << 48;

OrderedJson FileTensorToJson(const FileTensor& t) {
  OrderedJson out = {{"file", t.file},           {"file_offset", t.file_offset},
                     {"dtype", t.dtype},         {"shape", t.shape},
                     {"digest", t.digest.Hex()}, {"coverage", t.coverage.Hex()},
                     {"nan", t.nan_count},       {"inf", t.inf_count}};
  if (!t.keys.empty()) out["keys"] = t.keys;
  if (t.first_nonfinite) out["first_nonfinite"] = *t.first_nonfinite;
  AppendBlocks(out, t.blocks);
  AppendBytes(out, t.bytes);
  return out;
}

FileTensor ParseFileTensor(const std::string& name, const json& value, const std::string& pointer,
                           Complaint& complaint) {
  FileTensor t;
  t.name = name;
  FieldReader fields(value, pointer, complaint);
  fields.Optional("keys", t.keys);
  fields.Required("file", t.file);
  fields.Required("file_offset", t.file_offset);
  fields.Required("dtype", t.dtype);
  fields.Required("shape", t.shape, 0, kSizeMax);
  ParseDigest(fields, "digest", t.digest);
  ParseDigest(fields, "coverage", t.coverage);
  fields.Required("nan", t.nan_count);
  fields.Required("inf", t.inf_count);
  fields.Optional("first_nonfinite", t.first_nonfinite);
  ParseBlocks(fields, t.blocks);
  ParseBytes(fields, t.bytes);
  fields.Finish();
  return t;
}

using FileTensors = std::map<std::string, FileTensor>;

OrderedJson FileTensorsToJson(const FileTensors& tensors) {
  OrderedJson out = OrderedJson::object();
  // An ordered object finds keys by search; the names are unique already, so they are appended.
  auto& members = out.get_ref<OrderedJson::object_t&>();
  for (const auto& [name, tensor] : tensors) members.emplace_back(name, FileTensorToJson(tensor));
  return out;
}

FileTensors ParseFileTensors(FieldReader& fields, const char* field) {
  FileTensors tensors;
  ForEachMember(fields, field,
                [&](const std::string& name, const json& value, const std::string& pointer) {
                  tensors[name] = ParseFileTensor(name, value, pointer, fields.complaint());
                });
  return tensors;
}

OrderedJson FormToJson(const FileForm& form) {
  return {{"data_start", form.data_start},
          {"data_bytes", form.data_bytes},
          {"tensors", form.tensors}};
}

FileForm ParseForm(const json& value, const std::string& pointer, Complaint& complaint) {
  FileForm form;
  FieldReader fields(value, pointer, complaint);
  fields.Required("data_start", form.data_start);
  fields.Required("data_bytes", form.data_bytes);
  fields.Required("tensors", form.tensors, 0);
  fields.Finish();
  return form;
}

OrderedJson CheckpointToJson(const CheckpointRecord& record) {
  OrderedJson out = {{"error", record.error}, {"tensors", FileTensorsToJson(record.tensors)}};
  out["files"] = OrderedJson::object();
  for (const auto& [name, form] : record.files) out["files"][name] = FormToJson(form);
  out["indexed"] = record.indexed;
  if (record.total_size) out["total_size"] = *record.total_size;
  return out;
}

CheckpointRecord ParseCheckpoint(const json& value, const std::string& pointer,
                                 Complaint& complaint) {
  CheckpointRecord record;
  FieldReader fields(value, pointer, complaint);
  fields.Required("error", record.error);
  record.tensors = ParseFileTensors(fields, "tensors");
  if (fields.Known("files")) {  // older evidence does not say
    ForEachMember(fields, "files", [&](const std::string& name, const json& form, const std::string& at) {
      record.files[name] = ParseForm(form, at, complaint);
    });
  }
  fields.Optional("indexed", record.indexed);
  fields.Optional("total_size", record.total_size);
  fields.Finish();
  return record;
}

// JSON has no NaN or infinity: such a value is written as its bits.
OrderedJson FloatToJson(float value) {
  if (std::isfinite(value)) return static_cast<double>(value);
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return fmt::format("0x{:08x}", bits);
}

std::optional<float> ParseFloat(const json& value) {
  if (value.is_number()) return static_cast<float>(value.get<double>());
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  if (text.size() != 10 || text.compare(0, 2, "0x") != 0 ||
      text.find_first_not_of("0123456789abcdef", 2) != std::string::npos) {
    return std::nullopt;
  }
  const auto bits = static_cast<uint32_t>(std::stoul(text.substr(2), nullptr, 16));
  float parsed = 0;
  std::memcpy(&parsed, &bits, sizeof parsed);
  return parsed;
}

OrderedJson DerivedToJson(const DerivedExpectation& derived) {
  OrderedJson values = OrderedJson::array();
  for (const float value : derived.values) values.push_back(FloatToJson(value));
  return {{"formula", derived.formula}, {"ulp_max", derived.ulp_max}, {"values", values}};
}

DerivedExpectation ParseDerived(const json& value, const std::string& pointer,
                                Complaint& complaint) {
  DerivedExpectation derived;
  FieldReader fields(value, pointer, complaint);
  fields.Required("formula", derived.formula);
  fields.Required("ulp_max", derived.ulp_max, 0);
  ForEach(fields, "values", [&](const json& element, const std::string& at) {
    const std::optional<float> parsed = ParseFloat(element);
    if (!parsed) return complaint.Expected(at, "a number or \"0x\" and 8 hex digits", element);
    derived.values.push_back(*parsed);
  });
  fields.Finish();
  return derived;
}

OracleRecord ParseFields(const json& value, Complaint& complaint) {
  OracleRecord oracle;
  FieldReader fields(value, "", complaint);
  int64_t schema = 0;
  fields.Required("schema", schema, 1, 1);
  if (const json* source = fields.Object("source")) {
    oracle.source = ParseCheckpoint(*source, "/source", complaint);
  }
  ForEachMember(fields, "saved",
                [&](const std::string& name, const json& saved, const std::string& at) {
                  oracle.saved[name] = ParseCheckpoint(saved, at, complaint);
                });
  ForEach(fields, "ties", [&](const json& group, const std::string& at) {
    if (!group.is_array() || !std::all_of(group.begin(), group.end(),
                                          [](const json& name) { return name.is_string(); })) {
      return complaint.Expected(at, "an array of names", group);
    }
    oracle.ties.push_back(group.get<std::vector<std::string>>());
  });
  ForEachMember(fields, "derived",
                [&](const std::string& name, const json& derived, const std::string& at) {
                  oracle.derived[name] = ParseDerived(derived, at, complaint);
                });
  oracle.missing = ParseFileTensors(fields, "missing");
  fields.Required("missing_allowed", oracle.missing_allowed);
  fields.Required("unexpected_allowed", oracle.unexpected_allowed);
  ForEach(fields, "declared", [&](const json& tensor, const std::string& at) {
    TensorCase declared = ParseTensorCase(tensor, at, complaint);
    oracle.declared[declared.name] = std::move(declared);
  });
  fields.Finish();
  return oracle;
}

}  // namespace

Status WriteOracle(const std::string& directory, const OracleRecord& oracle) {
  OrderedJson out = {{"schema", 1}, {"source", CheckpointToJson(oracle.source)}};
  out["saved"] = OrderedJson::object();
  for (const auto& [name, saved] : oracle.saved) out["saved"][name] = CheckpointToJson(saved);
  out["ties"] = oracle.ties;
  out["derived"] = OrderedJson::object();
  for (const auto& [name, derived] : oracle.derived) out["derived"][name] = DerivedToJson(derived);
  out["missing"] = FileTensorsToJson(oracle.missing);
  out["missing_allowed"] = oracle.missing_allowed;
  out["unexpected_allowed"] = oracle.unexpected_allowed;
  out["declared"] = OrderedJson::array();
  for (const auto& [name, tensor] : oracle.declared) {
    out["declared"].push_back(OrderedJson(TensorCaseToJson(tensor)));
  }
  return WriteFileAtomically(directory + "/oracle.json", DumpLine(out) + "\n");
}

Result<OracleRecord> ReadOracle(const std::string& path) {
  std::string text, failure;
  if (!ReadWholeFile(path, kOracleBytesMax, text, failure)) return BadInput(path + ": " + failure);
  Result<json> value = ParseJsonLine(text);
  if (!value.ok()) return value.error().While(path);
  Complaint complaint;
  OracleRecord oracle = ParseFields(value.value(), complaint);
  if (!complaint.ok()) return BadInput(path + ": " + complaint.text());
  return oracle;
}

}  // namespace shardproof
