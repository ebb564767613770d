#include "verify/engine/verification.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <set>

#include "src/checkpoint/save.h"
#include "src/checkpoint/steps.h"
#include "src/text/quote.h"
#include "verify/bug/bug.h"
#include "verify/engine/disk_after_phase.h"
#include "verify/engine/saved_state.h"
#include "verify/evidence/line_file.h"
#include "verify/evidence/reader.h"
#include "verify/fault/fault.h"
#include "verify/fault/fault_descriptions.h"
#include "verify/oracle/header.h"
#include "verify/process/outputs.h"
#include "verify/verdict/select.h"

namespace shardproof {
namespace {

constexpr int kCaptureRounds = 1;

/// Everything that the phases of one verification share.
class Run {
 public:
  Run(const Case& test_case, Launcher& launcher, const VerifyOptions& options)
      : launcher_(launcher), options_(options) {
    evidence_.test_case = test_case;
    for (const auto& [name, values] : options.subject.options) {
      evidence_.test_case.options.try_emplace(name, values.front());
    }
    evidence_.cannot = options.subject.cannot;
    evidence_.shows = options.subject.shows;
  }

  /// Finds or makes the source and checks everything that can be wrong before a rank is started.
  Status Prepare();
  Status RunPhases();
  Status Consult();
  Result<std::vector<PropertyResult>> JudgeAll();
  /// Runs everything again in processes that start from nothing, if what failed did not.
  Result<std::vector<PropertyResult>> Confirm(std::vector<PropertyResult> results);
  /// Says of the properties that a planted bug should turn red and did not that they show nothing.
  void NoteUnseenBug(std::vector<PropertyResult>& results) const;
  const Evidence& evidence() const { return evidence_; }

 private:
  const Case& test_case() const { return evidence_.test_case; }
  std::vector<PhasePlan> Plans() const;
  std::string SavedBy(const std::string& phase) const;
  Status CheckShapes();
  Status CheckReferenceOnly() const;
  Status Launch(const PhasePlan& plan, PhaseEvidence& phase);
  /// Launches the phases that are wanted once more, and consults the oracle about what they left.
  Status LaunchAgain(const std::function<bool(const PhasePlan&)>& wanted);
  std::string WhyNot(const PhasePlan& plan) const;
  void Tell(const std::string& line) const {
    if (options_.progress) options_.progress(line);
  }

  Launcher& launcher_;
  const VerifyOptions& options_;
  Evidence evidence_;
  std::string source_;
  std::vector<oracle::TensorLocation> locations_;
  std::vector<CaptureRequest> captures_;
  bool fresh_ = false;
  bool launched_ = false;   ///< something was to be saved where the user wants it
  bool had_steps_ = false;  ///< and that was not empty
};

/// The phases that the properties asked for read, and what is only to be shown if it is to be;
/// "values" is always one.
std::vector<PhasePlan> Run::Plans() const {
  std::vector<PhasePlan> plans = PlanPhases(test_case(), options_.subject.cannot);
  if (!options_.to_be_shown) std::erase_if(plans, [](const auto& plan) { return plan.only_shown; });
  const auto selected = SelectProperties(options_.properties);  // all, if none are named
  if (!selected.ok()) return plans;
  std::erase_if(plans, [&](const PhasePlan& plan) {
    const auto reads = [&](const Property* property) { return property->Reads(plan.name); };
    const auto& properties = selected.value();
    const bool is_read = std::any_of(properties.begin(), properties.end(), reads);
    // What follows a fault is judged in place of what it struck.
    const bool is_of_fault = plan.armed || plan.beside_struck;
    return plan.name != "values" && !is_of_fault && (test_case().as_stated || !is_read);
  });
  return plans;
}

std::string Run::SavedBy(const std::string& phase) const {
  const std::string struck = StruckPhase(test_case(), options_.subject.cannot);
  if (phase == "after") return SavedBy(struck);
  // Paths as long as that of the struck phase: a framework may send them to other ranks, and how
  // many bytes travel is a fact.
  if (phase == "undisturbed") return options_.directory + "/alone_" + struck;
  if (phase == "undisturbed_again") return options_.directory + "/again_" + struck;
  // What is kept is a training job's state, if the reference is to train.
  const bool trains = test_case().subject == kReference && test_case().steps > 0;
  if (phase == (trains ? "train" : "values") && !options_.save_to.empty()) return options_.save_to;
  return options_.directory + "/saved_" + phase;
}

/// Whether a tensor that the model has as `declared` may come as `found`. Files say which
/// floating-point type; no other type is one, and codes are of the type that their config says.
bool MayBe(const std::string& declared, const std::string& found) {
  static const std::set<std::string> floats = {"F64", "F32", "F16", "BF16"};
  return declared == found || (floats.contains(declared) && floats.contains(found));
}

/// The model's own shapes and types against the file's: a checkpoint of another model is bad input.
Status Run::CheckShapes() {
  SP_ASSIGN(const auto declared, oracle::DeclareModel(test_case()));
  std::map<std::string_view, const TensorCase*> by_name;
  for (const TensorCase& tensor : declared.tensors) by_name[tensor.name] = &tensor;
  SP_ASSIGN(const auto placed, oracle::Place(source_, locations_, declared.tensors));
  std::map<std::string, std::string> dtypes;
  for (const oracle::PlacedTensor& found : placed) {
    const auto wanted = by_name.find(found.name);
    if (wanted == by_name.end() || !wanted->second->persistent) continue;
    const std::string where =
        fmt::format("{}: tensor '{}'", oracle::PathOf(source_, found.parts[0]), found.name);
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
                                  source_, name, dtypes[name], *first, dtypes[*first]));
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

/// Why what a subject saved is judged only by what it restores, or empty if the oracle reads it. An
/// empty directory is read: it is no checkpoint of any kind.
std::string WhyNotRead(const std::string& directory) {
  bool any = false;
  for (const std::string& name : NamesIn(directory)) {
    if (name == ".metadata")
      return "the subject saves DCP directories, which this version does not read";
    if (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")) return "";
    any = true;
  }
  return any ? "the subject saves no safetensors files, and this version reads nothing else" : "";
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

/// Bugs and faults act at the reference's own seams; and it has no pipeline stages.
Status Run::CheckReferenceOnly() const {
  if (test_case().subject == kReference) {
    if (test_case().device != "cpu" && !test_case().faults.empty()) {
      return BadInput(fmt::format("fault {} acts on tensors in the host's memory, the device is {}",
                                  test_case().faults[0].id, test_case().device));
    }
    if (test_case().transport == "sim") SP_TRY(CheckSimulated(test_case()));
    SP_TRY(CheckMesh(test_case().mesh));
    return test_case().resume_mesh.empty() ? Ok() : CheckMesh(test_case().resume_mesh);
  }
  const auto refuse = [&](const std::string& what) {
    return BadInput(fmt::format("{} acts in the reference pipeline, the subject is {}", what,
                                test_case().subject));
  };
  if (!test_case().bug.empty()) return refuse("bug " + test_case().bug);
  const ModelCase& model = test_case().model;
  if (model.lora || !model.adapter.empty()) return refuse("an adapter");
  if (model.from_scratch) return refuse("from_scratch");
  if (test_case().device != "cpu") return refuse("device " + test_case().device);
  if (test_case().leftovers) return refuse("leftovers: what an earlier job left");
  if (test_case().optimizer != "none") return refuse("optimizer " + test_case().optimizer);
  if (test_case().training.offload > 0) return refuse("offload");
  if (test_case().device_bytes > 0) return refuse("device_bytes");
  if (test_case().transport != "gloo") return refuse("transport " + test_case().transport);
  for (const FaultCase& asked : test_case().faults) {
    SP_ASSIGN(const Fault fault, FindFault(asked.id));
    if (!fault.in_subject) return refuse("fault " + asked.id);
  }
  return Ok();
}

Status Run::Prepare() {
  SP_TRY(CheckReferenceOnly());
  source_ = test_case().model.checkpoint;
  if (source_.empty()) {
    source_ = options_.directory + "/source";
    std::error_code error;
    std::filesystem::remove_all(source_, error);
    if (!std::filesystem::create_directory(source_, error)) {
      return BadInput(fmt::format("{}: cannot be made: {}", source_, error.message()));
    }
    SP_TRY(oracle::WriteSynthetic(test_case(), source_));
  }
  const bool trains = test_case().subject == kReference && test_case().steps > 0;
  SP_TRY(CheckSaveTo(options_.save_to, source_, trains, test_case().SavedSteps()));
  SP_ASSIGN(locations_, oracle::LocateSource(test_case(), source_));
  SP_TRY(CheckShapes());
  if (!test_case().bug.empty()) SP_TRY(FindBug(test_case().bug));
  if (test_case().as_stated && test_case().faults.empty()) {
    return BadInput(
        "--judge-faults: expected a fault to judge (--inject, --kill or --stop), found "
        "none");
  }
  for (const FaultCase& asked : test_case().faults) {
    SP_ASSIGN(const Fault fault, FindFault(asked.id));
    if (Status sound = fault.check(test_case(), locations_, asked.where); !sound.ok()) {
      return sound.error().While(text::Printable(asked.id + "@" + asked.where));
    }
    if (test_case().subject == kReference) continue;
    if (const auto strikes = fault.in_subject(test_case(), asked.where); !strikes.ok()) {
      return strikes.error().While(text::Printable(asked.id + "@" + asked.where));
    }
  }
  SP_TRY(SelectProperties(options_.properties));
  return Ok();
}

/// Why a planned phase cannot run here, or nothing.
std::string Run::WhyNot(const PhasePlan& plan) const {
  if (!plan.resumes.empty() && !std::filesystem::exists(SavedBy(plan.resumes))) {
    return fmt::format("phase {} saved nothing to resume from", plan.resumes);
  }
  if (plan.beside_struck && !options_.save_to.empty()) {
    return "the directory of --save-to keeps what the fault left there";
  }
  if (plan.mode == RunMode::kMemory && !options_.measures_memory) {
    return "memory is not measured in runs of many cases";
  }
  return launcher_.CannotRun(plan);
}

Status Run::Launch(const PhasePlan& plan, PhaseEvidence& phase) {
  phase = {.name = plan.name,
           .mode = ToString(plan.mode),
           .strategy = plan.strategy,
           .mesh = plan.mesh,
           .skipped = WhyNot(plan)};
  if (!phase.skipped.empty()) return Ok();
  if (plan.saves && SavedBy(plan.name) == options_.save_to) {
    // A second launch finds the first one's steps, which it saves anew.
    had_steps_ = had_steps_ || (!launched_ && !NamesIn(options_.save_to).empty());
    launched_ = true;
  }
  const bool is_struck = plan.armed && Disrupts(test_case());
  if (plan.saves && SavedBy(plan.name) != options_.save_to && plan.follows.empty()) {
    std::error_code error;  // of an earlier launch; a save that cannot replace it says so
    std::filesystem::remove_all(SavedBy(plan.name), error);
    // What a fault may cost. What a subject saves over is its own affair: it is asked for a
    // directory.
    if (test_case().leftovers || (is_struck && test_case().subject == kReference)) {
      SP_TRY(plan.trains
                 ? LeaveStepsAsAnEarlierJob(SavedBy(plan.name), test_case().SavedSteps().front())
                 : LeaveAsAnEarlierJob(SavedBy(plan.name)));
    }
  }
  Tell(fmt::format("{}: {} ranks, {}", plan.name, plan.WorldSize(), plan.strategy));
  SP_ASSIGN(const auto exits,
            launcher_.Launch({test_case(), plan, source_, locations_,
                              SavedBy(plan.resumes.empty() ? plan.name : plan.resumes),
                              options_.directory + "/" + plan.name, captures_, fresh_}));
  for (size_t rank = 0; rank < exits.size(); ++rank) {
    RankEvidence& left = phase.ranks.emplace_back();
    left.rank = static_cast<int64_t>(rank);
    left.world_size = static_cast<int64_t>(exits.size());
    left.exit = exits[rank].exit;
    left.stderr_tail = exits[rank].stderr_tail;
  }
  if (plan.saves) phase.saved_files = NamesIn(SavedBy(plan.name));
  if (is_struck || plan.beside_struck) {
    evidence_.oracle.left[plan.name] =
        test_case().subject == kReference
            ? InspectLeft(SavedBy(plan.name), plan.trains, is_struck || !plan.follows.empty())
            : InspectLeftBySubject(SavedBy(plan.name), /*may_be_cut_short=*/is_struck);
  }
  return Ok();
}

Status Run::RunPhases() {
  for (const PhasePlan& plan : Plans()) {
    SP_TRY(Launch(plan, evidence_.phases.emplace_back()));
    SP_TRY(WriteRun(options_.directory, evidence_));
  }
  return Ok();
}

Status Run::Consult() {
  Tell("oracle: reading the checkpoints");
  SP_ASSIGN(const auto declared, oracle::DeclareModel(test_case()));
  const auto left = std::move(evidence_.oracle.left);  // looked at between the phases
  SP_ASSIGN(evidence_.oracle, oracle::Consult(test_case(), source_, captures_));
  evidence_.oracle.left = left;
  for (const PhasePlan& plan : Plans()) {
    if (!plan.saves || plan.mode != RunMode::kValues) continue;
    if (plan.beside_struck) continue;  // judged by what they leave
    if (!std::filesystem::exists(SavedBy(plan.name))) continue;
    if (plan.trains) {
      // A framework's keys, and what its steps have changed, are held against no file.
      if (test_case().subject == kReference) {
        const std::string root = SavedBy(plan.name);
        const bool was_empty = root != options_.save_to || !had_steps_;
        const SavedRoot& found = evidence_.oracle.roots[plan.name] = ReadSavedRoot(root, was_empty);
        const int64_t last = test_case().SavedSteps().back();
        const auto is_last = [&](const SavedStep& step) { return step.name == StepName(last); };
        // What is not there, checkpoint.commit_whole says.
        if (std::any_of(found.steps.begin(), found.steps.end(), is_last)) {
          evidence_.oracle.saved[plan.name] =
              ReadSavedState(root + "/" + StepName(last), declared.tensors);
        }
      }
      continue;
    }
    if (evidence_.WhyCannot("saved_files") == nullptr) {
      if (const std::string why = WhyNotRead(SavedBy(plan.name)); !why.empty()) {
        evidence_.cannot["saved_files"] = why;
        SP_TRY(WriteRun(options_.directory, evidence_));
      }
    }
    if (evidence_.WhyCannot("saved_files") != nullptr) continue;
    const std::string saved = SavedBy(plan.name);
    evidence_.oracle.saved[plan.name] = oracle::ReadCheckpoint(
        saved, oracle::LocateSaved(test_case(), saved), captures_, declared.tensors);
  }
  return WriteOracle(options_.directory, evidence_.oracle);
}

Status Run::LaunchAgain(const std::function<bool(const PhasePlan&)>& wanted) {
  for (const PhasePlan& plan : Plans()) {
    if (!wanted(plan)) continue;
    for (PhaseEvidence& phase : evidence_.phases) {
      if (phase.name == plan.name) SP_TRY(Launch(plan, phase));
    }
  }
  SP_TRY(WriteRun(options_.directory, evidence_));
  return Consult();
}

Result<std::vector<PropertyResult>> Run::JudgeAll() {
  // What is judged is what is on disk: evidence that cannot be read back is none.
  SP_ASSIGN(Evidence read, ReadEvidence(options_.directory));
  std::vector<PropertyResult> results = Judge(read, options_.properties);
  for (int round = 0; round < kCaptureRounds; ++round) {
    captures_ = WantedCaptures(results);
    if (captures_.empty()) break;
    Tell(fmt::format("capture: running again to record the bytes of {} tensors", captures_.size()));
    SP_TRY(LaunchAgain([&](const PhasePlan& plan) {
      return std::any_of(captures_.begin(), captures_.end(),
                         [&](const auto& c) { return c.phase == plan.name; });
    }));
    SP_ASSIGN(read, ReadEvidence(options_.directory));
    results = Judge(read, options_.properties);
  }
  evidence_ = std::move(read);
  return results;
}

Result<std::vector<PropertyResult>> Run::Confirm(std::vector<PropertyResult> results) {
  if (WorstVerdict(results) != Verdict::kFail || !launcher_.IsStanding()) return results;
  Tell("confirming in fresh processes");
  fresh_ = true;  // the bytes that were captured are captured at once
  std::set<std::string> failed;
  for (const PropertyResult& result : results) {
    for (const Finding& finding : result.judgement.findings()) failed.insert(finding.phase);
  }
  SP_TRY(LaunchAgain([&](const PhasePlan& plan) {
    if (plan.mode == RunMode::kMemory) return false;  // its ranks were fresh ones
    // What a fault struck, and what is held against it, are one story.
    if ((plan.armed && Disrupts(test_case())) || plan.beside_struck) return true;
    // What resumes depends on what was saved: it runs again after it.
    return failed.contains(plan.name) || failed.contains(plan.resumes);
  }));
  SP_ASSIGN(auto confirmed, JudgeAll());
  if (WorstVerdict(confirmed) == Verdict::kFail) return confirmed;
  for (size_t i = 0; i < confirmed.size(); ++i) {
    const auto& findings = results[i].judgement.findings();
    if (findings.empty()) continue;
    confirmed[i].judgement.Inconclusive("failed in a reused process but not in a fresh one: " +
                                        findings.front().message);
  }
  return confirmed;
}

void Run::NoteUnseenBug(std::vector<PropertyResult>& results) const {
  if (test_case().bug.empty() || WorstVerdict(results) == Verdict::kFail) return;
  const auto bug = FindBug(test_case().bug);
  if (!bug.ok()) return;
  const auto& killers = bug.value().killed_by;
  for (PropertyResult& result : results) {
    if (std::find(killers.begin(), killers.end(), result.id) == killers.end()) continue;
    result.judgement.Inconclusive(
        fmt::format("bug {} is planted but has no effect: it does not act on this model, "
                    "mesh or strategy",
                    test_case().bug));
  }
}

}  // namespace

Result<RunResult> Verify(const Case& test_case, Launcher& launcher, const VerifyOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  Run run(test_case, launcher, options);
  SP_TRY(run.Prepare());
  SP_TRY(run.RunPhases());
  SP_TRY(run.Consult());
  SP_ASSIGN(auto results, run.JudgeAll());
  SP_ASSIGN(results, run.Confirm(std::move(results)));
  run.NoteUnseenBug(results);
  RunResult result = MakeRunResult(run.evidence(), std::move(results), options.directory);
  result.faults = DescribeFaults(result.test_case);
  for (size_t i = 0; i < result.faults.size(); ++i) {
    const FaultCase& fault = result.test_case.faults[i];
    if (!HasStruck(fault, run.evidence())) result.faults[i] += " (did not fire)";
  }
  result.duration_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  result.versions["torch"] = SHARDPROOF_TORCH_VERSION;
  return result;
}

}  // namespace shardproof
