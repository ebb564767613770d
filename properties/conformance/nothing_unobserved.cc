// conformance.nothing_unobserved: what a job does, its observations show.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"

namespace shardproof::conformance::nothing_unobserved {
namespace {

/// Steps of optimizers that are not observed with the model that they step.
void CheckOptimizers(const PhaseEvidence& phase, Judgement& judgement) {
  std::map<std::string, std::vector<int64_t>> ranks;  // by what is said of them
  for (const RankEvidence& rank : phase.ranks) {
    for (const StageRecord& record : rank.stages) {
      if (record.of != "model") continue;
      judgement.Compared();
      if (!record.steps || record.steps->taken == 0) continue;
      const int64_t taken = record.steps->taken;
      ranks[fmt::format("{} took {} step{} before `{}` of phase {}, and `optimizer=` does not show "
                        "it there",
                        record.steps->unsure, taken, taken == 1 ? "" : "s", record.Key(),
                        phase.name())]
          .push_back(rank.rank);
    }
  }
  for (const auto& [what, on] : ranks) {
    judgement.Inconclusive(fmt::format("on {} {}", ScopeLine(phase, on), what));
  }
}

/// A checkpoint that was written is shown with what it was made of.
void CheckSave(const PhaseEvidence& phase, Judgement& judgement) {
  if (phase.saved_files.empty() || !AllEndedWell(phase)) return;
  const bool is_seen = std::any_of(phase.ranks.begin(), phase.ranks.end(), [](const auto& rank) {
    return std::any_of(rank.stages.begin(), rank.stages.end(),
                       [](const StageRecord& record) { return record.name == Stage::kSaved; });
  });
  judgement.Compared();
  if (is_seen) return;
  judgement.Inconclusive(
      fmt::format("phase {} has left a checkpoint, and no rank observed `{}`, so it is not known "
                  "what saving did to the model",
                  phase.name(), NameOf(Stage::kSaved)));
}

/// What a job hands over to be saved it may show, and need not: what comes back is judged.
void CompareStateDicts(const Evidence& evidence, Judgement& judgement) {
  bool saves = false, shows = false;
  for (const PhaseEvidence& phase : evidence.phases) {
    saves = saves || !phase.saved_files.empty();
    for (const RankEvidence& rank : phase.ranks) {
      shows = shows || Shows(rank, "state_dict");
    }
  }
  if (!saves || shows) return;
  judgement.NotCompared(
      fmt::format("no observation passes `state_dict=`, so what was handed over at `{}` is not "
                  "compared with the model",
                  NameOf(Stage::kSaved)));
}

/// What the first step begins from is shown.
void CheckBegin(const PhaseEvidence& phase, Judgement& judgement) {
  if (phase.facts().resumes || !AllEndedWell(phase)) return;
  if (StageReached(phase, Stage::kReady, judgement)) return;
  judgement.Inconclusive(
      fmt::format("no rank of phase {} observed `{}`, so it is not known what its first step did",
                  phase.name(), NameOf(Stage::kReady)));
}

/// Models that are shown at a moment that has no meaning here, such as a reference policy or what
/// an adapter was merged into.
void CheckOwnStages(const PhaseEvidence& phase, Judgement& judgement) {
  std::set<std::string> own;
  for (const RankEvidence& rank : phase.ranks) {
    for (const StageRecord& record : rank.stages) {
      if (record.of == "model" && !FindStage(record.name) && record.name != "ema") {
        own.insert(record.Key());
      }
    }
  }
  for (const std::string& key : own) {
    judgement.NotCompared(
        fmt::format("nothing says what `{}` of phase {} is to be, so only its ranks are compared; "
                    "copies of the weights can be observed as averages=",
                    key, phase.name()));
  }
}

/// An optimizer that one observation of a phase shows, and another, which could, does not.
void CompareObservations(const PhaseEvidence& phase, Judgement& judgement) {
  std::set<std::string> with, without;
  for (const RankEvidence& rank : phase.ranks) {
    for (const StageRecord& record : rank.stages) {
      if (record.of != "model" || !FindStage(record.name)) continue;
      const bool has = rank.Stage(record.Key() + ".optimizer") != nullptr;
      (has ? with : without).insert(record.Key());
    }
  }
  if (with.empty() || without.empty()) return;
  judgement.NotCompared(
      fmt::format("the optimizer of phase {} is observed at `{}`, and not at `{}`", phase.name(),
                  *with.begin(), *without.begin()));
}

bool Resumes(const StageRecord& record) {
  return record.name == Stage::kRestored || record.name == Stage::kResumed;
}

/// Whether a rank observed its optimizer when it saved, before anything that `ends`.
bool ShowsSave(const RankEvidence& rank, bool (*ends)(const StageRecord&)) {
  const auto end = std::find_if(rank.stages.begin(), rank.stages.end(), ends);
  return std::any_of(rank.stages.begin(), end, [](const StageRecord& record) {
    return record.of == "optimizer" && record.name == Stage::kSaved;
  });
}

/// An optimizer that steps here. Before the first step there is nothing to go on with.
bool IsStepped(const PhaseEvidence& phase, const StageRecord& record) {
  return record.of == "optimizer" &&
         (phase.facts().trains || record.name == Stage::kStepped || record.name == Stage::kResumed);
}

/// An optimizer that went on from what was restored is held against one that was saved.
void CheckResume(const Evidence& evidence, const PhaseEvidence& phase, Judgement& judgement) {
  bool steps = false, resumes = false, is_saved = false;
  for (const RankEvidence& rank : phase.ranks) {
    for (const StageRecord& record : rank.stages) {
      steps = steps || IsStepped(phase, record);
      resumes = resumes || Resumes(record);
    }
    is_saved = is_saved || ShowsSave(rank, Resumes);
  }
  if (!steps || !resumes) return;
  judgement.Compared();
  for (const PhaseEvidence& other : evidence.phases) {
    for (const RankEvidence& rank : other.ranks) {
      const auto never = [](const StageRecord&) { return false; };
      is_saved = is_saved || (other.phase != phase.phase && ShowsSave(rank, never));
    }
  }
  if (is_saved) return;
  judgement.Inconclusive(
      fmt::format("phase {} observed `{}`, and no rank observed the optimizer at `{}` before, so "
                  "whether the optimizer went on with the state that was saved is not known",
                  phase.name(), NameOf(Stage::kRestored), NameOf(Stage::kSaved)));
}

/// An optimizer that steps is observed with its model, a save when it is made, and what a subject
/// that trains begins with. An optimizer that one observation shows and another does not is told;
/// so are a stage that has no meaning here, and a save without its state dict.
void Check(const Evidence& evidence, Judgement& judgement) {
  for (const PhaseEvidence& phase : evidence.phases) {
    if (IsReference(evidence) || !phase.skipped.empty() || phase.facts().mode != RunMode::kValues ||
        WasStruck(phase))
      continue;
    CheckOptimizers(phase, judgement);
    CheckSave(phase, judgement);
    CheckResume(evidence, phase, judgement);
    if (!phase.facts().trains) continue;
    CheckBegin(phase, judgement);
    CompareObservations(phase, judgement);
    CheckOwnStages(phase, judgement);
  }
  if (!IsReference(evidence)) CompareStateDicts(evidence, judgement);
  judgement.Skipped("nothing was observed");
}

const PropertyRegistration kRegistration{{
    .id = "conformance.nothing_unobserved",
    .claim =
        "Every optimizer that steps, what its first step begins with and every save is observed.",
    .reads = {{EveryPhase(),
               {Stage::kReady, Stage::kStepped, Stage::kSaved, Stage::kRestored, Stage::kResumed},
               "steps of optimizers that are not observed, saved files"}},
    .tolerance = "none: sets",
    .source = "what is not observed is not judged, so it is not a pass",
    .killed_by = {"subject.hides_its_optimizer"},
    .check = Check,
    .only_subjects = true,
}};

}  // namespace
}  // namespace shardproof::conformance::nothing_unobserved
