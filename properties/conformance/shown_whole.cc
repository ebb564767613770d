// conformance.shown_whole: what a subject shows of a job in part, it shows whole.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"

namespace shardproof::conformance::shown_whole {
namespace {

bool AnyShows(const PhaseEvidence& phase, std::string_view of, std::optional<Stage> stage = {}) {
  return std::any_of(phase.ranks.begin(), phase.ranks.end(),
                     [&](const RankEvidence& rank) { return Shows(rank, of, stage); });
}

/// The same of the model at a stage.
bool AnyReached(const PhaseEvidence& phase, Stage stage) { return AnyShows(phase, "model", stage); }

class WholeCheck {
 public:
  WholeCheck(const Evidence& evidence, const PhaseEvidence& phase, Judgement& judgement)
      : evidence_(evidence), phase_(phase), judgement_(judgement) {}

  void Run() {
    CheckModel();
    if (!phase_.facts().resumes) {
      CheckReady();
      if (phase_.facts().saves && !evidence_.WhyCannot("save")) CheckSave();
    }
    if (!phase_.facts().trains) return;
    CheckSteps();
    CheckOptimizer();
  }

 private:
  void Found(const StageKey& stage, const std::string& what) {
    judgement_.Found(FindingAt(phase_, stage, "", "not-shown", {}, what));
  }

  /// What a state dict is of is shown with it.
  void CheckModel() {
    for (const RankEvidence& rank : phase_.ranks) {
      for (const StageRecord& record : rank.stages) {
        judgement_.Compared();
        if (record.of == "model" || rank.Stage(record.ModelKey()) != nullptr) continue;
        return Found(
            record.ModelKey(),
            fmt::format("rank {} shows {} there, and not the model that it is of", rank.rank,
                        record.of == "state_dict" ? "a state dict" : "an optimizer"));
      }
    }
  }

  /// What is saved or stepped was ready before.
  void CheckReady() {
    judgement_.Compared();
    if (AnyReached(phase_, Stage::kReady)) return;
    for (const Stage later : {Stage::kStepped, Stage::kSaved}) {
      if (!AnyReached(phase_, later)) continue;
      return Found(Stage::kReady,
                   fmt::format("no rank observed it, although `{}` was observed: what was there "
                               "before is not known",
                               NameOf(later)));
    }
  }

  /// A checkpoint is shown when it is written, and when it is read.
  void CheckSave() {
    judgement_.Compared(2);
    if (phase_.saved_files.empty()) return CheckSaves();
    const bool is_read = AnyReached(phase_, Stage::kRestored);
    if (!AnyReached(phase_, Stage::kSaved)) {
      if (!is_read) return;  // that nothing of it is shown, others say
      return Found(Stage::kSaved,
                   fmt::format("a checkpoint was written, and `{}` was observed: what saving did "
                               "to the model is not known",
                               NameOf(Stage::kRestored)));
    }
    if (is_read) return;
    if (const char* shown = ShowsRestore()) {
      Found(Stage::kRestored, fmt::format("a checkpoint was written, and {}: what came back of it "
                                          "is not known",
                                          shown));
    }
  }

  /// A job that saves at one time saves whenever it is asked to.
  void CheckSaves() {
    for (const PhaseEvidence& other : evidence_.phases) {
      if (other.saved_files.empty()) continue;
      return Found(Stage::kSaved,
                   fmt::format("no checkpoint was written, and phase {} left one", other.name()));
    }
  }

  /// What tells that the subject restores what it saves, or null.
  const char* ShowsRestore() const {
    if (AnyReached(phase_, Stage::kResumed)) return "steps from it were observed (`resumed`)";
    const bool elsewhere =
        std::any_of(evidence_.phases.begin(), evidence_.phases.end(),
                    [](const PhaseEvidence& other) { return AnyReached(other, Stage::kRestored); });
    return elsewhere ? "in another phase the subject observed `restored`" : nullptr;
  }

  /// All steps that the case asks for are shown, and a save or a restore says after which of them
  /// it is.
  void CheckSteps() {
    const int64_t asked = evidence_.test_case.steps;
    for (const Stage stage : {Stage::kStepped, Stage::kResumed}) {
      const std::optional<int64_t> last = LastStepOf(phase_, stage);
      judgement_.Compared();
      if (last ? *last == asked : !IsDue(stage)) continue;
      Found(last ? StageKey(fmt::format("{}@{}", NameOf(stage), *last)) : StageKey(stage),
            fmt::format("the case takes {} steps, and {}", asked,
                        last ? fmt::format("the last that was observed is {}", *last)
                             : "none was observed"));
    }
    for (const Stage stage : {Stage::kSaved, Stage::kRestored}) {
      for (const RankEvidence& rank : phase_.ranks) {
        const StageRecord* unsaid = rank.Stage(stage);
        judgement_.Compared();
        if (unsaid == nullptr || unsaid->step > 0 || unsaid->of != "model") continue;
        Found(stage, fmt::format("rank {} observed it without step=, so after which of {} steps it "
                                 "is is not known",
                                 rank.rank, asked));
        break;
      }
    }
  }

  /// Whether steps must follow what was shown: from `ready` with an optimizer, or from what was
  /// restored before the last step.
  bool IsDue(Stage steps) const {
    if (phase_.facts().resumes) return false;  // a subject takes none on another mesh
    if (steps == Stage::kStepped) return AnyShows(phase_, "optimizer", Stage::kReady);
    const std::optional<int64_t> from = LastStepOf(phase_, Stage::kRestored);
    return from && *from < evidence_.test_case.steps && !phase_.saved_files.empty();
  }

  /// An optimizer that is shown at one moment is shown at each that follows a step, and where its
  /// state is saved or comes back.
  void CheckOptimizer() {
    if (phase_.facts().resumes || !AnyShows(phase_, "optimizer")) return;
    for (const Stage stage :
         {Stage::kReady, Stage::kStepped, Stage::kSaved, Stage::kRestored, Stage::kResumed}) {
      judgement_.Compared();
      if (FactsOf(stage).is_step) {
        CheckStepped(stage);
      } else if (AnyReached(phase_, stage) && !AnyShows(phase_, "optimizer", stage)) {
        Hidden(KeyOf(phase_, stage, "model"), "");
      }
    }
  }

  void CheckStepped(Stage stage) {
    for (const RankEvidence& rank : phase_.ranks) {
      for (const StageRecord& record : rank.stages) {
        if (record.name != stage || record.of != "model" || !Shows(rank, "optimizer")) continue;
        judgement_.Compared();
        if (!record.steps || record.steps->taken == 0) continue;
        if (rank.Stage(record.Key() + ".optimizer") != nullptr) continue;
        return Hidden(record.Key(), fmt::format(", although {} stepped", record.steps->unsure));
      }
    }
  }

  void Hidden(const std::string& key, const std::string& more) {
    Found(key, fmt::format("the model is observed without optimizer=, which this phase shows "
                           "elsewhere{}",
                           more));
  }

  const Evidence& evidence_;
  const PhaseEvidence& phase_;
  Judgement& judgement_;
};

/// Of a subject whose ranks came to their ends: where what it shows proves that there was more to
/// show, that is shown too. What it shows nothing of at all is no finding: others say what could
/// not be judged.
void Check(const Evidence& evidence, Judgement& judgement) {
  const bool is_script = evidence.WhyCannot("save") && evidence.WhyCannot("train");
  for (const PhaseEvidence& phase : evidence.phases) {
    if (IsReference(evidence) || is_script || !phase.skipped.empty() || phase.ranks.empty() ||
        phase.facts().mode != RunMode::kValues || WasStruck(phase) || !AllEndedWell(phase))
      continue;
    WholeCheck(evidence, phase, judgement).Run();
  }
  judgement.Skipped(is_script ? "it neither saves nor trains"
                              : "nothing was observed by a job whose ranks came to their ends");
}

const PropertyRegistration kRegistration{{
    .id = "conformance.shown_whole",
    .claim = "What a subject shows in part it shows whole: the model before steps and saves, all "
             "steps, the optimizer at each of them, a save and what came back of it.",
    .reads = {{EveryPhase(),
               {Stage::kReady, Stage::kStepped, Stage::kSaved, Stage::kRestored, Stage::kResumed},
               "which stages are observed, and what with"}},
    .tolerance = "none: sets",
    .source = "verify/subjects/README.md: what must be observed",
    .killed_by = {"subject.optimizer_shown_at_times", "subject.optimizer_shown_late",
                  "subject.steps_less_than_asked", "subject.ready_not_shown",
                  "subject.restore_not_shown", "subject.state_dict_without_its_model"},
    .check = Check,
    .only_subjects = true,
}};

}  // namespace
}  // namespace shardproof::conformance::shown_whole
