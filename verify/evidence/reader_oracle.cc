// oracle.json: what the verifier's own reader and formulas said.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "verify/case/case_json.h"
#include "verify/evidence/line_file.h"
#include "verify/evidence/line_reader.h"
#include "verify/evidence/reader.h"
#include "verify/evidence/records_json.h"

namespace shardproof {
namespace {

constexpr size_t kOracleBytesMax = size_t{1} << 30;

void AddFileTensor(JsonText& out, const FileTensor& t) {
  out.Begin('{').Add("file", t.file).Add("file_offset", t.file_offset).Add("dtype", t.dtype);
  out.Add("shape", t.shape).Add("digest", t.digest.Hex()).Add("coverage", t.coverage.Hex());
  out.Add("nan", t.nan_count).Add("inf", t.inf_count);
  if (!t.keys.empty()) out.Add("keys", t.keys);
  if (t.first_nonfinite) out.Add("first_nonfinite", *t.first_nonfinite);
  AddBlocks(out, t.blocks);
  AddBytes(out, t.bytes);
  out.End('}');
}

FileTensor ParseFileTensor(const std::string& name, const JsonValue& value,
                           const std::string& pointer, Complaint& complaint) {
  FileTensor t;
  t.name = name;
  FieldReader fields(value, pointer, complaint);
  fields.Optional("keys", t.keys);
  fields.Required("file", t.file);
  fields.Required("file_offset", t.file_offset);
  fields.Required("dtype", t.dtype);
  fields.Required("shape", t.shape, 0, kRecordedSizeMax);
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

void AddFileTensors(JsonText& out, const char* field, const FileTensors& tensors) {
  out.Begin(field, '{');
  for (const auto& [name, tensor] : tensors) AddFileTensor(out.Key(name), tensor);
  out.End('}');
}

FileTensors ParseFileTensors(FieldReader& fields, const char* field) {
  FileTensors tensors;
  ForEachMember(fields, field,
                [&](const std::string& name, const JsonValue& value, const std::string& pointer) {
                  tensors[name] = ParseFileTensor(name, value, pointer, fields.complaint());
                });
  return tensors;
}

FileForm ParseForm(const JsonValue& value, const std::string& pointer, Complaint& complaint) {
  FileForm form;
  FieldReader fields(value, pointer, complaint);
  fields.Required("data_start", form.data_start);
  fields.Required("data_bytes", form.data_bytes);
  fields.Required("tensors", form.tensors, 0);
  fields.Finish();
  return form;
}

void AddCheckpoint(JsonText& out, const CheckpointRecord& record) {
  out.Begin('{').Add("error", record.error);
  AddFileTensors(out, "tensors", record.tensors);
  out.Begin("files", '{');
  for (const auto& [name, form] : record.files) {
    out.Begin(name, '{').Add("data_start", form.data_start).Add("data_bytes", form.data_bytes);
    out.Add("tensors", form.tensors).End('}');
  }
  out.End('}').Add("indexed", record.indexed);
  if (record.total_size) out.Add("total_size", *record.total_size);
  out.End('}');
}

CheckpointRecord ParseCheckpoint(const JsonValue& value, const std::string& pointer,
                                 Complaint& complaint) {
  CheckpointRecord record;
  FieldReader fields(value, pointer, complaint);
  fields.Required("error", record.error);
  record.tensors = ParseFileTensors(fields, "tensors");
  if (fields.Known("files")) {  // older evidence does not say
    ForEachMember(fields, "files",
                  [&](const std::string& name, const JsonValue& form, const std::string& at) {
                    record.files[name] = ParseForm(form, at, complaint);
                  });
  }
  fields.Optional("indexed", record.indexed);
  fields.Optional("total_size", record.total_size);
  fields.Finish();
  return record;
}

void AddRoot(JsonText& out, const SavedRoot& root) {
  out.Begin('{').Add("error", root.error).Add("was_empty", root.was_empty);
  out.Add("latest", root.latest).Add("names", root.names).Begin("steps", '[');
  for (const SavedStep& step : root.steps) {
    out.Begin('{').Add("name", step.name).Add("sealed", step.sealed);
    out.Add("tensors", step.tensors).Add("damage", step.damage).End('}');
  }
  out.End(']').End('}');
}

SavedRoot ParseRoot(const JsonValue& value, const std::string& pointer, Complaint& complaint) {
  SavedRoot root;
  FieldReader fields(value, pointer, complaint);
  fields.Required("error", root.error);
  fields.Required("was_empty", root.was_empty);
  fields.Required("latest", root.latest);
  fields.Required("names", root.names);
  ForEach(fields, "steps", [&](const JsonValue& element, const std::string& at) {
    SavedStep& step = root.steps.emplace_back();
    FieldReader of_step(element, at, complaint);
    of_step.Required("name", step.name);
    of_step.Required("sealed", step.sealed);
    of_step.Required("tensors", step.tensors, 0);
    of_step.Required("damage", step.damage);
    of_step.Finish();
  });
  fields.Finish();
  return root;
}

void AddLeft(JsonText& out, const LeftRecord& left) {
  out.Begin('{').Add("had_previous", left.had_previous).Begin("checkpoints", '[');
  for (const LeftCheckpoint& one : left.checkpoints) {
    out.Begin('{').Add("name", one.name).Add("is_previous", one.is_previous);
    out.Add("content", one.content).Add("damage", one.damage).End('}');
  }
  out.End(']');
  if (left.latest) out.Add("latest", *left.latest);
  out.Add("drafts", left.drafts).End('}');
}

LeftRecord ParseLeft(const JsonValue& value, const std::string& pointer, Complaint& complaint) {
  LeftRecord left;
  FieldReader fields(value, pointer, complaint);
  fields.Required("had_previous", left.had_previous);
  ForEach(fields, "checkpoints", [&](const JsonValue& element, const std::string& at) {
    LeftCheckpoint& one = left.checkpoints.emplace_back();
    FieldReader of_one(element, at, complaint);
    of_one.Required("name", one.name);
    of_one.Required("is_previous", one.is_previous);
    of_one.Required("content", one.content);
    of_one.Required("damage", one.damage);
    of_one.Finish();
  });
  if (fields.Known("latest")) fields.Required("latest", left.latest.emplace());
  fields.Required("drafts", left.drafts);
  fields.Finish();
  return left;
}

void AddTwin(JsonText& out, const TwinOracle& twin) {
  out.Begin('{').Add("made_by", twin.made_by).Add("why_none", twin.why_none);
  out.Add("held", twin.held).Begin("deviations", '[');
  for (const TwinDeviation& one : twin.deviations) {
    out.Begin('{').Add("tensor", one.tensor).Add("kind", one.kind).Add("what", one.what).End('}');
  }
  out.End(']').Add("unheld", twin.unheld);
  AddFileTensors(out, "expected", twin.values);
  out.Add("missing", twin.keys.missing).Add("unexpected", twin.keys.unexpected);
  out.Add("used_attributes", twin.used_attributes);
  AddOptimizerGroups(out, twin.groups);
  out.End('}');
}

TwinOracle ParseTwinOracle(const JsonValue& value, const std::string& pointer,
                           Complaint& complaint) {
  TwinOracle twin;
  FieldReader fields(value, pointer, complaint);
  fields.Required("made_by", twin.made_by);
  fields.Required("why_none", twin.why_none);
  fields.Required("held", twin.held);
  ForEach(fields, "deviations", [&](const JsonValue& element, const std::string& at) {
    TwinDeviation& one = twin.deviations.emplace_back();
    FieldReader of_one(element, at, complaint);
    of_one.Required("tensor", one.tensor);
    of_one.Required("kind", one.kind);
    of_one.Required("what", one.what);
    of_one.Finish();
  });
  fields.Required("unheld", twin.unheld);
  twin.values = ParseFileTensors(fields, "expected");
  fields.Required("missing", twin.keys.missing);
  fields.Required("unexpected", twin.keys.unexpected);
  fields.Required("used_attributes", twin.used_attributes);
  twin.groups = ParseOptimizerGroups(fields);
  fields.Finish();
  return twin;
}

// JSON has no NaN or infinity: such a value is written as its bits.
void AddFloat(JsonText& out, float value) {
  if (std::isfinite(value)) {
    out.Add(static_cast<double>(value));
    return;
  }
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  out.Add(fmt::format("0x{:08x}", bits));
}

std::optional<float> ParseFloat(const JsonValue& value) {
  double number = 0;
  std::string_view text;
  if (!value.get(number)) return static_cast<float>(number);
  if (value.get(text)) return std::nullopt;
  if (text.size() != 10 || text.compare(0, 2, "0x") != 0 ||
      text.find_first_not_of("0123456789abcdef", 2) != std::string::npos) {
    return std::nullopt;
  }
  const auto bits = static_cast<uint32_t>(std::stoul(std::string(text.substr(2)), nullptr, 16));
  float parsed = 0;
  std::memcpy(&parsed, &bits, sizeof parsed);
  return parsed;
}

void AddDerived(JsonText& out, const DerivedExpectation& derived) {
  out.Begin('{')
      .Add("formula", derived.formula)
      .Add("ulp_max", derived.ulp_max)
      .Begin("values", '[');
  for (const float value : derived.values) AddFloat(out, value);
  out.End(']').End('}');
}

DerivedExpectation ParseDerived(const JsonValue& value, const std::string& pointer,
                                Complaint& complaint) {
  DerivedExpectation derived;
  FieldReader fields(value, pointer, complaint);
  fields.Required("formula", derived.formula);
  fields.Required("ulp_max", derived.ulp_max, 0);
  ForEach(fields, "values", [&](const JsonValue& element, const std::string& at) {
    const std::optional<float> parsed = ParseFloat(element);
    if (!parsed) return complaint.Expected(at, "a number or \"0x\" and 8 hex digits", element);
    derived.values.push_back(*parsed);
  });
  fields.Finish();
  return derived;
}

/// Records by phase: what `read` makes of each.
template <typename Record>
void ReadByPhase(FieldReader& fields, const char* name, Complaint& complaint,
                 Record (*read)(const JsonValue&, const std::string&, Complaint&),
                 std::map<Phase, Record>& records) {
  ForEachMember(fields, name,
                [&](const std::string& key, const JsonValue& value, const std::string& at) {
                  const auto phase = ParsePhase(key);
                  if (!phase.ok()) return complaint.Say(at, phase.error().message);
                  records[phase.value()] = read(value, at, complaint);
                });
}

OracleRecord ParseFields(const JsonValue& value, Complaint& complaint) {
  OracleRecord oracle;
  FieldReader fields(value, "", complaint);
  int64_t schema = 0;
  fields.Required("schema", schema, 1, 1);
  if (const auto source = fields.Object("source")) {
    oracle.source = ParseCheckpoint(*source, "/source", complaint);
  }
  ReadByPhase(fields, "saved", complaint, ParseCheckpoint, oracle.saved);
  // Older evidence does not say.
  if (fields.Known("left")) ReadByPhase(fields, "left", complaint, ParseLeft, oracle.left);
  if (fields.Known("roots")) ReadByPhase(fields, "roots", complaint, ParseRoot, oracle.roots);
  ForEach(fields, "ties", [&](const JsonValue& group, const std::string& at) {
    ParseStrings(group, at, complaint, oracle.ties.emplace_back(), "an array of names");
  });
  ForEachMember(fields, "derived",
                [&](const std::string& name, const JsonValue& derived, const std::string& at) {
                  oracle.derived[name] = ParseDerived(derived, at, complaint);
                });
  oracle.missing = ParseFileTensors(fields, "missing");
  fields.Required("missing_allowed", oracle.missing_allowed);
  fields.Required("unexpected_allowed", oracle.unexpected_allowed);
  ForEach(fields, "declared", [&](const JsonValue& tensor, const std::string& at) {
    TensorCase declared = ParseTensorCase(tensor, at, complaint);
    oracle.declared[declared.name] = std::move(declared);
  });
  if (fields.Known("twin")) {
    if (const auto twin = fields.Object("twin")) {
      oracle.twin = ParseTwinOracle(*twin, "/twin", complaint);
    }
  }
  if (fields.Known("twin_steps")) {
    ForEach(fields, "twin_steps", [&](const JsonValue& element, const std::string& at) {
      FieldReader step(element, at, complaint);
      oracle.twin_steps.push_back(ParseTwinStep(step));
      step.Finish();
    });
  }
  fields.Optional("why_no_twin_steps", oracle.why_no_twin_steps);
  fields.Finish();
  return oracle;
}

}  // namespace

Status WriteOracle(const std::string& directory, const OracleRecord& oracle) {
  JsonText out;
  out.Begin('{').Add("schema", 1);
  AddCheckpoint(out.Key("source"), oracle.source);
  out.Begin("saved", '{');
  for (const auto& [phase, saved] : oracle.saved) AddCheckpoint(out.Key(NameOf(phase)), saved);
  out.End('}').Begin("roots", '{');
  for (const auto& [phase, root] : oracle.roots) AddRoot(out.Key(NameOf(phase)), root);
  out.End('}').Begin("left", '{');
  for (const auto& [phase, left] : oracle.left) AddLeft(out.Key(NameOf(phase)), left);
  out.End('}').Add("ties", oracle.ties).Begin("derived", '{');
  for (const auto& [name, derived] : oracle.derived) AddDerived(out.Key(name), derived);
  out.End('}');
  AddFileTensors(out, "missing", oracle.missing);
  out.Add("missing_allowed", oracle.missing_allowed)
      .Add("unexpected_allowed", oracle.unexpected_allowed);
  out.Begin("declared", '[');
  for (const auto& [name, tensor] : oracle.declared) out.AddRaw(DumpJson(TensorCaseToJson(tensor)));
  out.End(']');
  if (oracle.twin) AddTwin(out.Key("twin"), *oracle.twin);
  if (!oracle.twin_steps.empty()) {
    out.Begin("twin_steps", '[');
    for (const TwinStep& step : oracle.twin_steps) AddTwinStep(out, step);
    out.End(']');
  }
  if (!oracle.why_no_twin_steps.empty()) out.Add("why_no_twin_steps", oracle.why_no_twin_steps);
  out.End('}');
  return WriteFileAtomically(directory + "/oracle.json", out.text() + "\n");
}

Result<OracleRecord> ReadOracle(const std::string& path) {
  std::string text, failure;
  if (!ReadWholeFile(path, kOracleBytesMax, text, failure)) return BadInput(path + ": " + failure);
  simdjson::dom::parser parser;
  const Result<JsonValue> value = ParseJson(parser, text);
  if (!value.ok()) return value.error().While(path);
  Complaint complaint;
  OracleRecord oracle = ParseFields(value.value(), complaint);
  if (!complaint.ok()) return BadInput(path + ": " + complaint.text());
  return oracle;
}

}  // namespace shardproof
