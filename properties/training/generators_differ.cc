// training.generators_differ: no two ranks of a job draw the same random numbers, and no two steps.
#include <fmt/format.h>

#include <map>

#include "verify/verdict/locate.h"
#include "verify/verdict/select.h"

namespace shardproof::training::generators_differ {
namespace {

/// The ranks of one phase at one stage.
void CheckStage(const PhaseEvidence& phase, const std::string& key, Judgement& judgement) {
  FindingsByRank findings(phase, key);
  std::map<std::string, int64_t> first;  // rank, by the generator's state
  for (const RankEvidence& rank : phase.ranks) {
    const StageRecord* record = rank.Stage(key);
    if (record == nullptr || record->rng.empty()) continue;
    const auto [other, is_new] = first.emplace(record->rng, rank.rank);
    if (is_new) {
      if (first.size() > 1) judgement.Compared();
      continue;
    }
    judgement.Compared();
    findings.Add("", "alike",
                 fmt::format("the random number generator is in the very state of that of rank {}: "
                             "they draw the same",
                             other->second),
                 {rank.rank});
  }
  findings.Report(judgement);
}

/// The steps of one rank, each of which draws.
void CheckSteps(const PhaseEvidence& phase, const RankEvidence& rank,
                const std::vector<std::string>& stages, Judgement& judgement) {
  std::map<std::string, const StageRecord*> first;  // by the generator's state
  for (const std::string& key : stages) {
    const StageRecord* record = rank.Stage(key);
    if (record == nullptr || record->rng.empty()) continue;
    const StageRecord& earlier = *first.emplace(record->rng, record).first->second;
    if (earlier.step == record->step) continue;
    judgement.Found(FindingAt(phase, key, "", "repeated", {rank.rank},
                              fmt::format("the random number generator is in the very state that "
                                          "it had at `{}`: the steps draw the same",
                                          earlier.Key())));
  }
  if (first.size() > 1) judgement.Compared(first.size() - 1);
}

/// At every stage of a training job of the reference, whose ranks each draw for themselves in each
/// step, the generators of all ranks are in different states, those of ranks that a resume on a
/// larger mesh has added too, and a rank's own is in another state after each step.
void Check(const Evidence& evidence, Judgement& judgement) {
  if (!IsReference(evidence)) {
    judgement.Skipped("whether the ranks of a subject are to draw alike is not known");
    return;
  }
  if (PhaseToJudge(evidence, Phase::kTrain, judgement) == nullptr) return;
  for (const PhaseEvidence* phase : TrainPhases(evidence)) {
    const std::vector<std::string> stages = TrainStages(*phase, "model", judgement);
    for (const std::string& key : stages) CheckStage(*phase, key, judgement);
    for (const RankEvidence& rank : phase->ranks) CheckSteps(*phase, rank, stages, judgement);
  }
  judgement.Skipped("no phase has several ranks or steps");
}

const PropertyRegistration kRegistration{{
    .id = "training.generators_differ",
    .claim = "No two ranks of the reference draw the same random numbers, and no two steps.",
    .reads = {{TrainingPhases(),
               {Stage::kReady, Stage::kRestored, Stage::kStepped, Stage::kResumed}}},
    .tolerance = "none: two states are one or are not",
    .source =
        "torch.distributed: torch.manual_seed seeds all ranks alike unless it is told the rank",
    .killed_by = {"training.generators_alike", "training.generator_starts_anew",
                  "checkpoint.rng_of_rank0_for_all"},
    .check = Check,
    .capabilities = {"train"},
}};

}  // namespace
}  // namespace shardproof::training::generators_differ
