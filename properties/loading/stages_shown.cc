// loading.stages_shown: nothing on the way to a loaded model is left unshown, and so unjudged.
#include <vector>

#include "verify/verdict/select.h"

namespace shardproof::loading::stages_shown {
namespace {

std::vector<Stage> StagesOf(const PhaseEvidence& phase, const Case& test_case) {
  if (phase.facts().resumes) return {Stage::kRestored};
  std::vector<Stage> stages = {Stage::kBuilt, Stage::kLoaded};
  if (test_case.optimizer == "before-sharding") stages.push_back(Stage::kBound);
  stages.insert(stages.end(), {Stage::kSharded, Stage::kMaterialized, Stage::kReady});
  return stages;
}

void CheckPhase(const PhaseEvidence& phase, const Case& test_case, Judgement& judgement) {
  for (const Stage stage : StagesOf(phase, test_case)) {
    FindingsByRank findings(phase, stage);
    for (const RankEvidence& rank : phase.ranks) {
      if (!EndedWell(rank)) continue;
      judgement.Compared();
      if (Shows(rank, "model", stage)) continue;
      findings.Add("", "not-shown", "the rank ended well, but did not show the model there",
                   {rank.rank});
    }
    findings.Report(judgement);
  }
}

/// Every rank of the reference that ends well has shown its model at each stage that it loads or
/// restores it by, in every phase. What a subject shows is its own choice.
void Check(const Evidence& evidence, Judgement& judgement) {
  if (!IsReference(evidence)) {
    judgement.Skipped("a subject chooses what it shows");
    return;
  }
  for (const PhaseEvidence& phase : evidence.phases) {
    CheckPhase(phase, evidence.test_case, judgement);
  }
  judgement.Skipped("no rank ended well");
}

const PropertyRegistration kRegistration{{
    .id = "loading.stages_shown",
    .claim = "Every rank that loads or restores a model and ends well has shown it at each stage.",
    .reads = {{EveryPhase(), {}, "which stages were reached"}},
    .tolerance = "none: a set",
    .source = "what nobody shows is judged by nothing",
    .killed_by = {"loading.shown_on_rank0_only"},
    .check = Check,
}};

}  // namespace
}  // namespace shardproof::loading::stages_shown
