#include "verify/engine/verification.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>

#include "src/checkpoint/save.h"
#include "src/checkpoint/steps.h"
#include "verify/bug/bug.h"
#include "verify/engine/disk_after_phase.h"
#include "verify/engine/other_values.h"
#include "verify/engine/prepare.h"
#include "verify/engine/saved_state.h"
#include "verify/engine/twin.h"
#include "verify/evidence/line_file.h"
#include "verify/evidence/reader.h"
#include "verify/fault/fault.h"
#include "verify/fault/fault_descriptions.h"
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
    evidence_.mesh_is_asked = options.mesh_is_asked;
    evidence_.is_quick = options.is_quick;
  }

  /// Everything that can be wrong before a rank is started.
  Status Begin() {
    SP_ASSIGN(prepared_, Prepare(test_case(), options_));
    return Ok();
  }
  Status RunPhases();
  Status Consult();
  Result<std::vector<PropertyResult>> JudgeAll();
  /// Runs everything again in processes that start from nothing, if what failed did not.
  Result<std::vector<PropertyResult>> Confirm(std::vector<PropertyResult> results);
  /// Says of the properties that a planted bug should turn red and did not that they show nothing.
  void NoteUnseenBug(std::vector<PropertyResult>& results) const;
  const Evidence& evidence() const { return evidence_; }
  bool failed_only_reused() const { return failed_only_reused_; }

 private:
  const Case& test_case() const { return evidence_.test_case; }
  std::vector<PhasePlan> Plans() const;
  std::string SavedBy(Phase phase) const;
  /// Runs the plain twin, where there is to be one. \error kBadInput if there is none and nobody
  /// else knows the model.
  Status LaunchTwin();
  /// Where ranks leave the values of their steps for the twin, if somebody asks for it; else empty.
  std::string StepsOf(const PhasePlan& plan) const;
  /// Has the twin take the steps that lie there.
  Status LaunchTwinSteps(const std::string& steps);
  Status ConsultFiles();
  CheckpointRecord ReadSaved(const std::string& saved) const;
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
  Prepared prepared_;
  std::optional<oracle::Twin> twin_;
  std::string why_no_twin_;  ///< where there was to be one
  std::vector<CaptureRequest> captures_;
  bool fresh_ = false;
  bool failed_only_reused_ = false;
  bool launched_ = false;   ///< something was to be saved where the user wants it
  bool had_steps_ = false;  ///< and that was not empty
};

/// The phases that the properties asked for read, and what is only to be shown if it is to be;
/// kValues is always one.
std::vector<PhasePlan> Run::Plans() const {
  std::vector<PhasePlan> plans = PlanPhases(test_case(), options_.subject.cannot);
  if (!options_.to_be_shown)
    std::erase_if(plans, [](const auto& plan) { return plan.facts().only_shown; });
  if (!options_.subject.OnlyRank0Reads(test_case().options))
    std::erase_if(plans, [](const auto& plan) { return plan.facts().one_reads; });
  const auto selected = SelectProperties(options_.properties);  // all, if none are named
  if (!selected.ok()) return plans;
  std::erase_if(plans, [&](const PhasePlan& plan) {
    const auto reads = [&](const Property* property) { return property->Reads(plan.phase); };
    const auto& properties = selected.value();
    const bool is_read = std::any_of(properties.begin(), properties.end(), reads);
    // What follows a fault is judged in place of what it struck.
    const bool is_of_fault = plan.armed || plan.facts().repeats_struck;
    if (options_.is_quick) return plan.phase != Phase::kValues && !is_of_fault;
    return plan.phase != Phase::kValues && !is_of_fault && (test_case().as_stated || !is_read);
  });
  return plans;
}

std::string Run::SavedBy(Phase phase) const {
  const PhaseFacts& facts = FactsOf(phase);
  if (facts.repeats_struck) {
    const Phase struck = StruckPhase(test_case(), options_.subject.cannot);
    if (facts.follows_struck) return SavedBy(struck);
    // Paths as long as that of the struck phase: a framework may send them to other ranks, and how
    // many bytes travel is a fact.
    const char* as = phase == Phase::kUndisturbed ? "alone" : "again";
    return fmt::format("{}/{}_{}", options_.directory, as, NameOf(struck));
  }
  // What is kept is a training job's state, if the reference is to train.
  const bool trains = test_case().subject == kReference && test_case().steps > 0;
  const Phase kept = trains ? Phase::kTrain : Phase::kValues;
  if (phase == kept && !options_.save_to.empty()) return options_.save_to;
  return fmt::format("{}/saved_{}", options_.directory, NameOf(phase));
}

/// Whether a file may be one of safetensors: a length of 8 bytes, and then JSON.
bool BeginsAsSafetensors(const std::string& path) {
  std::string begin(9, '\0');
  std::ifstream(path, std::ios::binary).read(begin.data(), 9);
  return begin.back() == '{';
}

/// Why what a subject saved is judged only by what it restores, or empty if the oracle reads it. An
/// empty directory is read: it is no checkpoint of any kind.
std::string WhyNotRead(const std::string& saved) {
  if (std::filesystem::is_regular_file(saved) && !BeginsAsSafetensors(saved))
    return "the subject saves a file that is none of safetensors, which this version does not read";
  bool any = false;
  for (const std::string& name : NamesIn(saved)) {
    if (name == ".metadata")
      return "the subject saves DCP directories, which this version does not read";
    if (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")) return "";
    any = true;
  }
  return any ? "the subject saves no safetensors files, and this version reads nothing else" : "";
}

/// Why a planned phase cannot run here, or nothing.
std::string Run::WhyNot(const PhasePlan& plan) const {
  const std::optional<Phase> resumes = plan.facts().resumes;
  if (resumes && !std::filesystem::exists(SavedBy(*resumes))) {
    return fmt::format("phase {} saved nothing to resume from", NameOf(*resumes));
  }
  if (plan.facts().repeats_struck && !options_.save_to.empty()) {
    return "the directory of --save-to keeps what the fault left there";
  }
  if (plan.facts().mode == RunMode::kMemory && !options_.measures_memory) {
    return "memory is not measured in runs of many cases";
  }
  return launcher_.CannotRun(plan);
}

Status Run::Launch(const PhasePlan& plan, PhaseEvidence& phase) {
  phase = {.phase = plan.phase,
           .strategy = plan.strategy,
           .mesh = plan.mesh,
           .laid_over = plan.laid_over,
           .skipped = WhyNot(plan)};
  if (!phase.skipped.empty()) return Ok();
  if (plan.saves && SavedBy(plan.phase) == options_.save_to) {
    // A second launch finds the first one's steps, which it saves anew.
    had_steps_ = had_steps_ || (!launched_ && !NamesIn(options_.save_to).empty());
    launched_ = true;
  }
  std::string others_source;
  if (plan.facts().one_reads) {
    const bool is_file = std::filesystem::is_regular_file(prepared_.source);
    others_source = options_.directory + "/source_of_others" + (is_file ? ".safetensors" : "");
    SP_TRY(WriteOtherValues(prepared_.source, others_source));
  }
  const bool is_struck = plan.armed && Disrupts(test_case());
  if (plan.saves && SavedBy(plan.phase) != options_.save_to && !plan.follows) {
    std::error_code error;  // of an earlier launch; a save that cannot replace it says so
    std::filesystem::remove_all(SavedBy(plan.phase), error);
    // What a fault may cost. What a subject saves over is its own affair: it is asked for a
    // directory.
    if (test_case().leftovers || (is_struck && test_case().subject == kReference)) {
      SP_TRY(plan.trains
                 ? LeaveStepsAsAnEarlierJob(SavedBy(plan.phase), test_case().SavedSteps().front())
                 : LeaveAsAnEarlierJob(SavedBy(plan.phase)));
    }
  }
  Tell(fmt::format("{}: {} ranks, {}", plan.name(), plan.WorldSize(), plan.strategy));
  const std::string steps = StepsOf(plan);
  SP_ASSIGN(const auto exits,
            launcher_.Launch({test_case(), plan, prepared_.source, prepared_.locations,
                              SavedBy(plan.facts().resumes.value_or(plan.phase)),
                              options_.directory + "/" + plan.name(), captures_, fresh_,
                              /*is_twin=*/false, steps, others_source}));
  std::error_code none;
  std::filesystem::remove_all(others_source, none);
  if (!steps.empty()) SP_TRY(LaunchTwinSteps(steps));
  for (size_t rank = 0; rank < exits.size(); ++rank) {
    RankEvidence& left = phase.ranks.emplace_back();
    left.rank = static_cast<int64_t>(rank);
    left.world_size = static_cast<int64_t>(exits.size());
    left.exit = exits[rank].exit;
    left.stderr_tail = exits[rank].stderr_tail;
  }
  if (plan.saves) phase.saved_files = NamesIn(SavedBy(plan.phase));
  if (is_struck || plan.facts().repeats_struck) {
    evidence_.oracle.left[plan.phase] =
        test_case().subject == kReference
            ? InspectLeft(SavedBy(plan.phase), plan.trains, is_struck || plan.follows.has_value())
            : InspectLeftBySubject(SavedBy(plan.phase), /*may_be_cut_short=*/is_struck);
  }
  return Ok();
}

Status Run::LaunchTwin() {
  if (!WantsTwin(test_case())) return Ok();
  Tell("twin: building and loading the model plainly");
  auto twin = RunTwin(test_case(), prepared_.source, options_.directory, captures_, launcher_);
  if (twin.ok()) {
    twin_ = std::move(twin).value();
    return Ok();
  }
  if (twin.error().code == ErrorCode::kInternal) return twin.error();
  why_no_twin_ = twin.error().message;
  twin_.reset();
  const auto by_hand = oracle::DeclareModel(test_case());
  if (by_hand.ok()) return Ok();
  return BadInput("what the model must be is not known: " + why_no_twin_);
}

std::string Run::StepsOf(const PhasePlan& plan) const {
  // Of the phases that train one is enough; what a fault strikes is held against other things.
  if (!plan.trains || !plan.facts().saves || plan.armed || test_case().subject == kReference)
    return "";
  const auto selected = SelectProperties(options_.properties);
  const auto needs = [](const Property* property) { return property->needs_twin_steps; };
  const bool wanted =
      selected.ok() && std::any_of(selected.value().begin(), selected.value().end(), needs);
  return wanted ? options_.directory + "/values_of_steps" : "";
}

Status Run::LaunchTwinSteps(const std::string& steps) {
  Tell("twin: taking the steps that were observed");
  auto taken = RunTwinSteps(test_case(), prepared_.source, options_.directory, steps, launcher_);
  std::error_code none;
  std::filesystem::remove_all(steps, none);
  if (!taken.ok() && taken.error().code == ErrorCode::kInternal) return taken.error();
  evidence_.oracle.twin_steps.clear();
  evidence_.oracle.why_no_twin_steps = taken.ok() ? "" : taken.error().message;
  if (taken.ok()) evidence_.oracle.twin_steps = std::move(taken).value();
  return Ok();
}

Status Run::RunPhases() {
  SP_TRY(LaunchTwin());
  for (const PhasePlan& plan : Plans()) {
    SP_TRY(Launch(plan, evidence_.phases.emplace_back()));
    SP_TRY(WriteRun(options_.directory, evidence_));
  }
  return Ok();
}

/// What the source and the twin say.
Status Run::ConsultFiles() {
  OracleRecord consulted;
  if (twin_) {
    SP_ASSIGN(consulted, oracle::ConsultTwin(test_case(), prepared_.source, captures_, *twin_));
  } else {
    SP_ASSIGN(consulted, oracle::Consult(test_case(), prepared_.source, captures_));
    if (!why_no_twin_.empty()) consulted.twin = TwinOracle{.why_none = why_no_twin_};
  }
  // What was looked at between the phases.
  consulted.left = std::move(evidence_.oracle.left);
  consulted.twin_steps = std::move(evidence_.oracle.twin_steps);
  consulted.why_no_twin_steps = std::move(evidence_.oracle.why_no_twin_steps);
  evidence_.oracle = std::move(consulted);
  return Ok();
}

CheckpointRecord Run::ReadSaved(const std::string& saved) const {
  const auto places = oracle::LocateSaved(test_case(), saved);
  if (!twin_) {
    const auto declared = oracle::DeclareModel(test_case());
    if (!declared.ok()) return {.error = declared.error().message};
    return oracle::ReadCheckpoint(saved, places, captures_, declared.value().tensors);
  }
  if (!places.ok()) return {.error = places.error().message};
  return oracle::ReadPlaced(saved, places.value(), oracle::PlaceTwin(*twin_, places.value()),
                            captures_);
}

Status Run::Consult() {
  Tell("oracle: reading the checkpoints");
  SP_TRY(ConsultFiles());
  for (const PhasePlan& plan : Plans()) {
    if (!plan.saves || plan.facts().mode != RunMode::kValues) continue;
    if (plan.facts().repeats_struck) continue;  // judged by what they leave
    if (!std::filesystem::exists(SavedBy(plan.phase))) continue;
    if (plan.trains) {
      // A framework's keys, and what its steps have changed, are held against no file.
      if (test_case().subject == kReference) {
        const std::string root = SavedBy(plan.phase);
        const bool was_empty = root != options_.save_to || !had_steps_;
        const SavedRoot& found = evidence_.oracle.roots[plan.phase] =
            ReadSavedRoot(root, was_empty);
        const int64_t last = test_case().SavedSteps().back();
        const auto is_last = [&](const SavedStep& step) { return step.name == StepName(last); };
        // What is not there, checkpoint.commit_whole says.
        if (std::any_of(found.steps.begin(), found.steps.end(), is_last)) {
          SP_ASSIGN(const auto declared, oracle::DeclareModel(test_case()));
          evidence_.oracle.saved[plan.phase] =
              ReadSavedState(root + "/" + StepName(last), declared.tensors);
        }
      }
      continue;
    }
    if (evidence_.WhyCannot("saved_files") == nullptr) {
      if (const std::string why = WhyNotRead(SavedBy(plan.phase)); !why.empty()) {
        evidence_.cannot["saved_files"] = why;
        SP_TRY(WriteRun(options_.directory, evidence_));
      }
    }
    if (evidence_.WhyCannot("saved_files") != nullptr) continue;
    evidence_.oracle.saved[plan.phase] = ReadSaved(SavedBy(plan.phase));
  }
  return WriteOracle(options_.directory, evidence_.oracle);
}

Status Run::LaunchAgain(const std::function<bool(const PhasePlan&)>& wanted) {
  // What is captured of a tensor is held against what the twin has of it.
  if (twin_ && !captures_.empty()) SP_TRY(LaunchTwin());
  for (const PhasePlan& plan : Plans()) {
    if (!wanted(plan)) continue;
    for (PhaseEvidence& phase : evidence_.phases) {
      if (phase.phase == plan.phase) SP_TRY(Launch(plan, phase));
    }
  }
  SP_TRY(WriteRun(options_.directory, evidence_));
  return Consult();
}

Result<std::vector<PropertyResult>> Run::JudgeAll() {
  // What is judged is what is on disk: evidence that cannot be read back is none.
  SP_ASSIGN(Evidence read, ReadEvidence(options_.directory));
  std::vector<PropertyResult> results = Judge(read, options_.properties);
  const int rounds = options_.is_quick ? 0 : kCaptureRounds;
  for (int round = 0; round < rounds; ++round) {
    captures_ = WantedCaptures(results);
    if (captures_.empty()) break;
    Tell(fmt::format("capture: running again to record the bytes of {} tensors", captures_.size()));
    SP_TRY(LaunchAgain([&](const PhasePlan& plan) {
      return std::any_of(captures_.begin(), captures_.end(),
                         [&](const auto& c) { return c.phase == plan.phase; });
    }));
    SP_ASSIGN(read, ReadEvidence(options_.directory));
    results = Judge(read, options_.properties);
  }
  evidence_ = std::move(read);
  return results;
}

Result<std::vector<PropertyResult>> Run::Confirm(std::vector<PropertyResult> results) {
  if (!options_.confirms || options_.is_quick || !launcher_.IsStanding()) return results;
  if (WorstVerdict(results) != Verdict::kFail) return results;
  Tell("confirming in fresh processes");
  fresh_ = true;  // the bytes that were captured are captured at once
  std::set<Phase> failed;
  for (const PropertyResult& result : results) {
    for (const Finding& finding : result.judgement.findings()) {
      if (finding.phase) failed.insert(*finding.phase);
    }
  }
  SP_TRY(LaunchAgain([&](const PhasePlan& plan) {
    if (plan.facts().mode == RunMode::kMemory) return false;  // its ranks were fresh ones
    // What a fault struck, and what is held against it, are one story.
    if ((plan.armed && Disrupts(test_case())) || plan.facts().repeats_struck) return true;
    // What resumes depends on what was saved: it runs again after it.
    const std::optional<Phase> resumes = plan.facts().resumes;
    return failed.contains(plan.phase) || (resumes && failed.contains(*resumes));
  }));
  SP_ASSIGN(auto confirmed, JudgeAll());
  if (WorstVerdict(confirmed) == Verdict::kFail) return confirmed;
  for (size_t i = 0; i < confirmed.size(); ++i) {
    const auto& findings = results[i].judgement.findings();
    if (findings.empty()) continue;
    confirmed[i].judgement.Inconclusive("failed in a reused process but not in a fresh one: " +
                                        findings.front().message);
    failed_only_reused_ = true;
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
  SP_TRY(run.Begin());
  SP_TRY(run.RunPhases());
  SP_TRY(run.Consult());
  SP_ASSIGN(auto results, run.JudgeAll());
  SP_ASSIGN(results, run.Confirm(std::move(results)));
  run.NoteUnseenBug(results);
  RunResult result = MakeRunResult(run.evidence(), std::move(results), options.directory);
  result.failed_only_reused = run.failed_only_reused();
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
