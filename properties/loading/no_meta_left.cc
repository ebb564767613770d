// loading.no_meta_left: once a model is ready, none of its tensors may still be a placeholder.
#include "verify/verdict/select.h"

namespace shardproof::loading::no_meta_left {
namespace {

void CheckRank(const RankEvidence& rank, const StageRecord& record, FindingsByRank& findings,
               Judgement& judgement) {
  for (const auto& [name, state] : record.tensors) {
    judgement.Compared();
    if (!state.is_meta && state.device != "meta") continue;
    const std::string kind = rank.Descriptor(state).kind;
    findings.Add(name, "meta", "the " + kind + " is still on the meta device", {rank.rank});
  }
}

void CheckStage(const PhaseEvidence& phase, const std::string& stage, Judgement& judgement) {
  FindingsByRank findings(phase, stage);
  for (const RankEvidence& rank : phase.ranks) {
    const StageRecord* record = rank.Stage(stage);
    if (record != nullptr) CheckRank(rank, *record, findings, judgement);
  }
  findings.Report(judgement);
}

/// At `ready` and `restored`, and at every stage of training, no parameter, buffer or optimizer
/// state is on the meta device.
void Check(const Evidence& evidence, Judgement& judgement) {
  for (const PhaseEvidence* phase : LoadPhases(evidence, judgement)) {
    for (const std::string& stage : FinalStages(*phase, judgement)) {
      CheckStage(*phase, stage, judgement);
    }
  }
  for (const auto& [phase, stage] : AllTrainStages(evidence, judgement)) {
    CheckStage(*phase, stage, judgement);
  }
}

const PropertyRegistration kRegistration{{
    .id = "loading.no_meta_left",
    .claim = "Once ready or restored, no parameter and no buffer is on the meta device.",
    .reads = {{LoadingPhases(), {Stage::kReady, Stage::kRestored}},
              {TrainingPhases(),
               {Stage::kReady, Stage::kStepped, Stage::kSaved, Stage::kRestored, Stage::kResumed}}},
    .tolerance = "none: a flag",
    .source = "areal-project/AReaL#1182 (review): has_meta looks at parameters only, and "
              "buffers of vision models stay on meta",
    .killed_by = {"loading.meta_buffer_kept", "loading.materialize_skips_subtree"},
    .check = Check,
}};

}  // namespace
}  // namespace shardproof::loading::no_meta_left
