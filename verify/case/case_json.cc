// Case <-> JSON. Types and ranges are checked here, what needs two fields at once in case_check.cc.
#include "verify/case/case_json.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace shardproof {
namespace {

using nlohmann::json;

constexpr int64_t kSizeMax = int64_t{1} << 40;     // of one tensor dim
constexpr uint64_t kBytesMax = uint64_t{1} << 50;  // of any budget
constexpr int64_t kFilesMax = 1024;
constexpr int64_t kStepsMax = 10000;
constexpr int64_t kLoraRankMax = 1 << 16;
constexpr uint64_t kDayMs = 24u * 60 * 60 * 1000;
constexpr std::streamoff kCaseFileBytesMax = 64 << 20;

std::vector<std::vector<std::string>> ParseTies(FieldReader& model) {
  std::vector<std::vector<std::string>> ties;
  if (!model.Known("ties")) return ties;
  ForEach(model, "ties", [&](const JsonValue& group, const std::string& pointer) {
    ParseStrings(group, pointer, model.complaint(), ties.emplace_back(), "an array of names");
  });
  return ties;
}

RopeCase ParseRope(FieldReader& tensor) {
  RopeCase rope;
  const std::optional<JsonValue> value = tensor.Object("rope");
  if (!value) return rope;
  FieldReader fields(*value, tensor.PointerTo("rope"), tensor.complaint());
  fields.OneOf("rope_type", KnownRopes(), rope.type);
  fields.Optional("rope_theta", rope.theta);
  fields.Optional("dim", rope.dim, 0, kSizeMax);
  fields.Optional("factor", rope.factor);
  fields.Optional("low_freq_factor", rope.low_freq_factor);
  fields.Optional("high_freq_factor", rope.high_freq_factor);
  fields.Optional("original_max_position_embeddings", rope.original_max_position_embeddings, 0,
                  kSizeMax);
  fields.Optional("beta_fast", rope.beta_fast);
  fields.Optional("beta_slow", rope.beta_slow);
  fields.Optional("truncate", rope.truncate);
  fields.Optional("short_factor", rope.short_factor);
  fields.Optional("rotated", rope.rotated, 0, kSizeMax);
  fields.Finish();
  return rope;
}

json RopeToJson(const RopeCase& rope) {
  const RopeCase plain;
  json out = {{"rope_type", rope.type}, {"rope_theta", rope.theta}};
  const auto add = [&](const char* name, const auto& value, const auto& usual) {
    if (value != usual) out[name] = value;
  };
  add("dim", rope.dim, plain.dim);
  add("factor", rope.factor, plain.factor);
  add("low_freq_factor", rope.low_freq_factor, plain.low_freq_factor);
  add("high_freq_factor", rope.high_freq_factor, plain.high_freq_factor);
  add("original_max_position_embeddings", rope.original_max_position_embeddings,
      plain.original_max_position_embeddings);
  add("beta_fast", rope.beta_fast, plain.beta_fast);
  add("beta_slow", rope.beta_slow, plain.beta_slow);
  add("truncate", rope.truncate, plain.truncate);
  add("short_factor", rope.short_factor, plain.short_factor);
  add("rotated", rope.rotated, plain.rotated);
  return out;
}

std::vector<std::vector<StoredCase>> ParseStored(FieldReader& tensor) {
  std::vector<std::vector<StoredCase>> ways;
  ForEach(tensor, "stored", [&](const JsonValue& value, const std::string& pointer) {
    auto& way = ways.emplace_back();
    const auto parse_key = [&](const JsonValue& key, const std::string& at) {
      FieldReader fields(key, at, tensor.complaint());
      StoredCase& part = way.emplace_back();
      fields.Required("key", part.key);
      fields.Required("shape", part.shape, 0, kSizeMax);
      fields.Finish();
    };
    ForEachElement(value, pointer, tensor.complaint(), parse_key, "an array of keys");
  });
  return ways;
}

LoraCase ParseLora(FieldReader& model) {
  LoraCase lora;
  const std::optional<JsonValue> value = model.Object("lora");
  if (!value) return lora;
  FieldReader fields(*value, model.PointerTo("lora"), model.complaint());
  fields.Required("rank", lora.rank, 1, kLoraRankMax);
  fields.Required("targets", lora.targets);
  fields.Finish();
  return lora;
}

TrainingCase ParseTraining(FieldReader& of_case) {
  TrainingCase training;
  const std::optional<JsonValue> value = of_case.Object("training");
  if (!value) return training;
  FieldReader fields(*value, of_case.PointerTo("training"), of_case.complaint());
  fields.Optional("clip_norm", training.clip_norm);
  if (fields.Known("moments")) fields.OneOf("moments", KnownMoments(), training.moments);
  fields.Optional("masters", training.masters);
  fields.Optional("unfreeze_after", training.unfreeze_after, 0, kStepsMax);
  fields.Optional("offload", training.offload);
  fields.Optional("overlap", training.overlap);
  fields.Optional("save_every", training.save_every, 0, kStepsMax);
  fields.Optional("keep", training.keep, 1, kStepsMax);
  fields.Optional("async", training.async);
  if (fields.Known("format")) fields.OneOf("format", KnownSaveFormats(), training.format);
  fields.Optional("split_fused", training.split_fused);
  fields.Finish();
  if (fields.ok() && !(training.offload >= 0 && training.offload <= 1)) {
    of_case.complaint().Say(
        "/training/offload",
        fmt::format("expected a number from 0 to 1, found {}", training.offload));
  }
  if (fields.ok() && !(training.clip_norm >= 0)) {
    of_case.complaint().Say("/training/clip_norm", "expected a number of at least 0");
  }
  return training;
}

ModelCase ParseModel(const JsonValue& value, Complaint& complaint) {
  ModelCase model;
  FieldReader fields(value, "/model", complaint);
  const bool from_checkpoint = fields.Known("checkpoint");
  const bool synthetic = fields.Known("tensors");
  if (complaint.ok() && from_checkpoint == synthetic) {
    complaint.Say("/model", fmt::format("expected exactly one of \"checkpoint\" and \"tensors\", "
                                        "found {}",
                                        synthetic ? "both" : "neither"));
  }
  fields.Optional("checkpoint", model.checkpoint);
  if (from_checkpoint) {
    fields.Optional("adapter", model.adapter);
    if (fields.Known("lora")) model.lora = ParseLora(fields);
    fields.Optional("from_scratch", model.from_scratch);
  }
  if (synthetic) {
    ForEach(fields, "tensors", [&](const JsonValue& tensor, const std::string& pointer) {
      model.tensors.push_back(ParseTensorCase(tensor, pointer, complaint));
    });
    model.ties = ParseTies(fields);
    fields.Optional("files", model.files, 1, kFilesMax);
    fields.Optional("every_tied_name", model.every_tied_name);
  }
  fields.Optional("missing", model.missing);
  fields.Optional("unexpected", model.unexpected);
  fields.Finish();
  if (from_checkpoint && model.checkpoint.empty()) {
    complaint.Expected("/model/checkpoint", "the path of a directory", "");
  }
  if (synthetic && model.tensors.empty()) {
    complaint.Say("/model/tensors", "expected at least one tensor, found none");
  }
  return model;
}

FaultCase ParseFault(const JsonValue& value, const std::string& pointer, Complaint& complaint) {
  FaultCase fault;
  FieldReader fields(value, pointer, complaint);
  fields.Required("id", fault.id);
  fields.Optional("where", fault.where);
  fields.Finish();
  if (complaint.ok() && fault.id.empty()) {
    complaint.Expected(pointer + "/id", "the id of a fault, as `list faults` shows it", "");
  }
  return fault;
}

Case ParseFields(const JsonValue& value, Complaint& complaint) {
  Case c;
  FieldReader fields(value, "", complaint);
  int64_t schema = 0;
  fields.Required("schema", schema, 1, 1);
  fields.Optional("why", c.why);
  fields.Optional("seed", c.seed);
  fields.Optional("subject", c.subject);
  if (const auto model = fields.Object("model")) c.model = ParseModel(*model, complaint);
  c.mesh = ParseAxes(fields, "mesh");
  if (fields.Known("strategy")) fields.OneOf("strategy", KnownStrategies(), c.strategy);
  if (fields.Known("transport")) fields.OneOf("transport", KnownTransports(), c.transport);
  if (fields.Known("device")) fields.OneOf("device", KnownDevices(), c.device);
  if (fields.Known("optimizer")) fields.OneOf("optimizer", KnownOptimizers(), c.optimizer);
  fields.Optional("bucket_bytes", c.bucket_bytes, 1, kBytesMax);
  fields.Optional("device_bytes", c.device_bytes, 0, kBytesMax);
  fields.Optional("max_file_bytes", c.max_file_bytes, 0, kBytesMax);
  fields.Optional("leftovers", c.leftovers);
  fields.Optional("as_stated", c.as_stated);
  if (fields.Known("resume_mesh")) c.resume_mesh = ParseAxes(fields, "resume_mesh");
  fields.Optional("steps", c.steps, 0, kStepsMax);
  if (fields.Known("training")) c.training = ParseTraining(fields);
  fields.Optional("options", c.options);
  if (fields.Known("faults")) {
    ForEach(fields, "faults", [&](const JsonValue& fault, const std::string& pointer) {
      c.faults.push_back(ParseFault(fault, pointer, complaint));
    });
  }
  fields.Optional("bug", c.bug);
  fields.Optional("host_slack_bytes", c.host_slack_bytes, 0, kBytesMax);
  fields.Optional("deadline_ms", c.deadline_ms, 1, kDayMs);
  fields.Finish();
  return c;
}

json ModelToJson(const ModelCase& model) {
  json out = json::object();
  if (model.checkpoint.empty()) {
    out["tensors"] = json::array();
    for (const TensorCase& tensor : model.tensors) {
      out["tensors"].push_back(TensorCaseToJson(tensor));
    }
    out["ties"] = model.ties;
    out["files"] = model.files;
    if (model.every_tied_name) out["every_tied_name"] = true;
  } else {
    out["checkpoint"] = model.checkpoint;
    if (!model.adapter.empty()) out["adapter"] = model.adapter;
    if (model.lora) out["lora"] = {{"rank", model.lora->rank}, {"targets", model.lora->targets}};
    if (model.from_scratch) out["from_scratch"] = true;
  }
  out["missing"] = model.missing;
  out["unexpected"] = model.unexpected;
  return out;
}

}  // namespace

std::vector<AxisCase> ParseAxes(FieldReader& fields, const char* name) {
  std::vector<AxisCase> mesh;
  ForEach(fields, name, [&](const JsonValue& value, const std::string& pointer) {
    AxisCase axis;
    FieldReader axis_fields(value, pointer, fields.complaint());
    axis_fields.OneOf("name", KnownAxes(), axis.name);
    axis_fields.Required("size", axis.size, 1, kRanksMax);
    axis_fields.Finish();
    mesh.push_back(axis);
  });
  return mesh;
}

TensorCase ParseTensorCase(const JsonValue& value, const std::string& pointer,
                           Complaint& complaint) {
  TensorCase tensor;
  FieldReader fields(value, pointer, complaint);
  fields.Required("name", tensor.name);
  if (fields.Known("kind")) fields.OneOf("kind", KnownKinds(), tensor.kind);
  fields.Optional("persistent", tensor.persistent);
  fields.OneOf("dtype", KnownDtypes(), tensor.dtype);
  fields.Required("shape", tensor.shape, 0, kSizeMax);
  if (fields.Known("strides")) fields.Required("strides", tensor.strides, 1, kSizeMax);
  fields.Optional("requires_grad", tensor.requires_grad);
  fields.Optional("attributes", tensor.attributes);
  if (fields.Known("init")) fields.OneOf("init", KnownInits(), tensor.init);
  if (fields.Known("values")) fields.OneOf("values", KnownValues(), tensor.values);
  fields.Optional("built_real", tensor.built_real);
  if (fields.Known("rope")) tensor.rope = ParseRope(fields);
  if (fields.Known("stored")) tensor.stored = ParseStored(fields);
  fields.Optional("stored_as", tensor.stored_as, 0, kSizeMax);
  fields.Finish();
  return tensor;
}

json TensorCaseToJson(const TensorCase& tensor) {
  const TensorCase plain;
  json out = {{"name", tensor.name},
              {"kind", tensor.kind},
              {"dtype", tensor.dtype},
              {"shape", tensor.shape}};
  // What is as usual is left out: a case of 300 tensors stays readable.
  if (tensor.persistent != plain.persistent) out["persistent"] = tensor.persistent;
  if (!tensor.strides.empty()) out["strides"] = tensor.strides;
  if (tensor.requires_grad != plain.requires_grad) out["requires_grad"] = tensor.requires_grad;
  if (!tensor.attributes.empty()) out["attributes"] = tensor.attributes;
  if (tensor.init != plain.init) out["init"] = tensor.init;
  if (tensor.values != plain.values) out["values"] = tensor.values;
  if (tensor.built_real != plain.built_real) out["built_real"] = tensor.built_real;
  if (tensor.rope) out["rope"] = RopeToJson(*tensor.rope);
  for (const auto& way : tensor.stored) {
    json& keys = out["stored"].emplace_back(json::array());
    for (const StoredCase& part : way) keys.push_back({{"key", part.key}, {"shape", part.shape}});
  }
  if (tensor.stored_as != plain.stored_as) out["stored_as"] = tensor.stored_as;
  return out;
}

json AxesToJson(const std::vector<AxisCase>& mesh) {
  json out = json::array();
  for (const AxisCase& axis : mesh) out.push_back({{"name", axis.name}, {"size", axis.size}});
  return out;
}

json CaseToJson(const Case& c) {
  json faults = json::array();
  for (const FaultCase& fault : c.faults) {
    faults.push_back({{"id", fault.id}, {"where", fault.where}});
  }
  return {{"schema", c.schema},
          {"why", c.why},
          {"seed", c.seed},
          {"subject", c.subject},
          {"model", ModelToJson(c.model)},
          {"mesh", AxesToJson(c.mesh)},
          {"strategy", c.strategy},
          {"transport", c.transport},
          {"device", c.device},
          {"optimizer", c.optimizer},
          {"bucket_bytes", c.bucket_bytes},
          {"device_bytes", c.device_bytes},
          {"max_file_bytes", c.max_file_bytes},
          {"leftovers", c.leftovers},
          {"as_stated", c.as_stated},
          {"resume_mesh", AxesToJson(c.resume_mesh)},
          {"steps", c.steps},
          {"training",
           {{"clip_norm", c.training.clip_norm},
            {"moments", c.training.moments},
            {"masters", c.training.masters},
            {"unfreeze_after", c.training.unfreeze_after},
            {"offload", c.training.offload},
            {"overlap", c.training.overlap},
            {"save_every", c.training.save_every},
            {"keep", c.training.keep},
            {"async", c.training.async},
            {"format", c.training.format},
            {"split_fused", c.training.split_fused}}},
          {"options", c.options},
          {"faults", faults},
          {"bug", c.bug},
          {"host_slack_bytes", c.host_slack_bytes},
          {"deadline_ms", c.deadline_ms}};
}

Result<Case> ParseCase(const JsonValue& value) {
  Complaint complaint;
  Case parsed = ParseFields(value, complaint);
  if (complaint.ok()) CheckCase(parsed, complaint);
  SP_TRY(complaint.ToStatus());
  return parsed;
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
