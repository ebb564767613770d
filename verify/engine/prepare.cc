#include "verify/engine/prepare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <map>
#include <set>

#include "src/checkpoint/save.h"
#include "src/checkpoint/steps.h"
#include "src/text/quote.h"
#include "verify/bug/bug.h"
#include "verify/dcp_forms/dcp_forms.h"
#include "verify/engine/twin.h"
#include "verify/fault/fault.h"
#include "verify/oracle/header.h"
#include "verify/process/outputs.h"
#include "verify/verdict/select.h"

namespace shardproof {
namespace {

/// Whether a tensor that the model has as `declared` may come as `found`. Files say which
/// floating-point type; no other type is one, and codes are of the type that their config says.
bool MayBe(const std::string& declared, const std::string& found) {
  static const std::set<std::string> floats = {"F64", "F32", "F16", "BF16"};
  return declared == found || (floats.contains(declared) && floats.contains(found));
}

/// The model's own shapes and types against the file's: a checkpoint of another model is bad input.
Status CheckShapes(const Case& test_case, const Prepared& prepared) {
  const auto model = oracle::DeclareModel(test_case);
  // Of a model that is not known here, its plain twin says what it is.
  if (!model.ok() && WantsTwin(test_case)) return Ok();
  SP_ASSIGN(const auto declared, model);
  std::map<std::string_view, const TensorCase*> by_name;
  for (const TensorCase& tensor : declared.tensors) by_name[tensor.name] = &tensor;
  SP_ASSIGN(const auto placed,
            oracle::Place(prepared.source, prepared.locations, declared.tensors));
  std::map<std::string, std::string> dtypes;
  for (const oracle::PlacedTensor& found : placed) {
    const auto wanted = by_name.find(found.name);
    if (wanted == by_name.end() || !wanted->second->persistent) continue;
    const std::string where =
        fmt::format("{}: tensor '{}'", oracle::PathOf(prepared.source, found.parts[0]), found.name);
    if (found.shape != wanted->second->shape) {
      return BadInput(fmt::format("{} has shape [{}], where the model has [{}]", where,
                                  fmt::join(found.shape, ", "),
                                  fmt::join(wanted->second->shape, ", ")));
    }
    if (!MayBe(wanted->second->dtype, found.parts[0].dtype)) {
      return BadInput(fmt::format("{} has dtype {}, where the model has {}", where,
                                  found.parts[0].dtype, wanted->second->dtype));
    }
    dtypes[found.name] = found.parts[0].dtype;
  }
  for (const std::vector<std::string>& tie : declared.ties) {
    const std::string* first = nullptr;  // of those that the file has
    for (const std::string& name : tie) {
      if (!dtypes.contains(name)) continue;
      if (first == nullptr) first = &name;
      if (dtypes[name] == dtypes[*first]) continue;
      return BadInput(fmt::format("{}: tensor '{}' has dtype {}, and '{}', which it is tied to, {}",
                                  prepared.source, name, dtypes[name], *first, dtypes[*first]));
    }
  }
  return Ok();
}

/// What the reference can run of what a Case can say.
Status CheckMesh(const std::vector<AxisCase>& mesh) {
  for (const AxisCase& axis : mesh) {
    if (axis.name != "pp") continue;
    return BadInput("mesh: axis pp: every rank of the reference has every layer");
  }
  return Ok();
}

/// The saved checkpoint may replace what a save may replace, but never the source. Of a training
/// job it is the root of its steps.
Status CheckSaveTo(const std::string& save_to, const std::string& source, bool is_root,
                   const std::vector<int64_t>& steps) {
  namespace fs = std::filesystem;
  if (save_to.empty()) return Ok();
  SP_TRY(CheckApart(save_to, source, "--save-to"));
  const fs::path target = fs::absolute(save_to).lexically_normal();
  if (!fs::exists(target)) {
    const fs::path parent = (target.has_filename() ? target : target.parent_path()).parent_path();
    if (fs::is_directory(parent)) return Ok();
    return BadInput(
        fmt::format("{}: cannot be created: {} is not a directory", save_to, parent.string()));
  }
  if (!fs::is_directory(target)) return BadInput(save_to + ": exists and is not a directory");
  const auto files = MakePosixFileSystem();
  if (!is_root) return CheckReplaceable(*files, save_to);
  SP_TRY(CheckStepRoot(*files, save_to));
  for (const int64_t step : steps) SP_TRY(CheckReplaceable(*files, save_to + "/" + StepName(step)));
  return Ok();
}

/// What threads of one process cannot do. (Of faults, they say it themselves.)
Status CheckSimulated(const Case& test_case) {
  if (test_case.device == "cuda")
    return BadInput("transport sim: expected device cpu or isolated, found cuda");
  return Ok();
}

/// Most faults of the reference read or write tensors.
Status CheckFaultsReach(const Case& test_case) {
  if (test_case.device == "cpu") return Ok();
  for (const FaultCase& asked : test_case.faults) {
    SP_ASSIGN(const Fault fault, FindFault(asked.id));
    if (fault.on_any_device) continue;
    return BadInput(fmt::format("fault {} acts on tensors in the host's memory, the device is {}",
                                asked.id, test_case.device));
  }
  return Ok();
}

/// Bugs and faults act at the reference's own seams; and it has no pipeline stages.
Status CheckReferenceOnly(const Case& test_case, const Subject& subject) {
  if (test_case.subject == kReference) {
    SP_TRY(CheckFaultsReach(test_case));
    if (test_case.transport == "sim") SP_TRY(CheckSimulated(test_case));
    SP_TRY(CheckMesh(test_case.mesh));
    if (!test_case.model.factory.empty()) {
      return BadInput("--model builds the model of a subject: expected --subject FILE with it");
    }
    return test_case.resume_mesh.empty() ? Ok() : CheckMesh(test_case.resume_mesh);
  }
  const auto refuse = [&](const std::string& what) {
    return BadInput(fmt::format("{} acts in the reference pipeline, the subject is {}", what,
                                test_case.subject));
  };
  if (!test_case.bug.empty()) return refuse("bug " + test_case.bug);
  const ModelCase& model = test_case.model;
  if (model.lora) {
    return BadInput(
        "--lora adds to the reference pipeline: a subject makes a new adapter by itself, as "
        "transformers_peft.py does, or loads that of --adapter DIR");
  }
  if (!model.adapter.empty() && !subject.adapts) {
    return BadInput(
        fmt::format("--adapter: {} never reads case.adapter, so it would not load the adapter",
                    test_case.subject));
  }
  if (model.from_scratch) return refuse("from_scratch");
  if (ReadFrom(model, "") != "") return refuse("model/format " + model.format);
  if (test_case.device != "cpu") return refuse("device " + test_case.device);
  if (test_case.leftovers) return refuse("leftovers: what an earlier job left");
  if (test_case.optimizer != "none") return refuse("optimizer " + test_case.optimizer);
  if (test_case.training.offload > 0) return refuse("offload");
  if (test_case.device_bytes > 0) return refuse("device_bytes");
  if (test_case.transport != "gloo") return refuse("transport " + test_case.transport);
  for (const FaultCase& asked : test_case.faults) {
    SP_ASSIGN(const Fault fault, FindFault(asked.id));
    if (!fault.in_subject) return refuse("fault " + asked.id);
  }
  return Ok();
}

/// Of each fault that is asked for: its place, and whether it reaches this subject.
Status CheckFaults(const Case& test_case, const Prepared& prepared) {
  if (test_case.as_stated && test_case.faults.empty()) {
    return BadInput(
        "--judge-faults: expected a fault to judge (--inject, --kill or --stop), found none");
  }
  for (const FaultCase& asked : test_case.faults) {
    SP_ASSIGN(const Fault fault, FindFault(asked.id));
    if (Status sound = fault.check(test_case, prepared.locations, asked.where); !sound.ok()) {
      return sound.error().While(text::Printable(asked.id + "@" + asked.where));
    }
    if (test_case.subject == kReference) continue;
    if (const auto strikes = fault.in_subject(test_case, asked.where); !strikes.ok()) {
      return strikes.error().While(text::Printable(asked.id + "@" + asked.where));
    }
  }
  return Ok();
}

/// Whether nothing says which model a subject's checkpoint is of.
bool LacksModel(const Case& test_case) {
  const ModelCase& model = test_case.model;
  return WantsTwin(test_case) && model.factory.empty() &&
         std::filesystem::exists(model.checkpoint) &&
         !std::filesystem::exists(model.checkpoint + "/config.json");
}

/// The directory of the checkpoint that the Case names, or of one that is made for it.
Result<std::string> SourceOf(const Case& test_case, const std::string& directory) {
  if (!test_case.model.checkpoint.empty()) return test_case.model.checkpoint;
  const std::string source = directory + "/source";
  std::error_code error;
  std::filesystem::remove_all(source, error);
  if (!std::filesystem::create_directory(source, error)) {
    return BadInput(fmt::format("{}: cannot be made: {}", source, error.message()));
  }
  SP_TRY(oracle::WriteSynthetic(test_case, source));
  if (const std::string read = ReadFrom(test_case.model, source); read != source) {
    SP_TRY(dcp_forms::WriteDcp(test_case, read));
  }
  return source;
}

}  // namespace

Result<Prepared> Prepare(const Case& test_case, const VerifyOptions& options) {
  SP_TRY(CheckReferenceOnly(test_case, options.subject));
  Prepared prepared;
  SP_ASSIGN(prepared.source, SourceOf(test_case, options.directory));
  const bool trains = test_case.subject == kReference && test_case.steps > 0;
  SP_TRY(CheckSaveTo(options.save_to, prepared.source, trains, test_case.SavedSteps()));
  auto located = oracle::LocateSource(test_case, prepared.source);
  if (!located.ok() && LacksModel(test_case)) {
    return BadInput(located.error().message +
                    "; for files with other names, or without a config.json, name the model with "
                    "--model FILE.py:FUNCTION");
  }
  SP_ASSIGN(prepared.locations, located);
  SP_TRY(CheckShapes(test_case, prepared));
  if (!test_case.bug.empty()) SP_TRY(FindBug(test_case.bug));
  SP_TRY(CheckFaults(test_case, prepared));
  SP_TRY(SelectProperties(options.properties));
  return prepared;
}

}  // namespace shardproof
