// For tests: evidence of a job that trains, in which everything holds.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "properties/sound_evidence.h"

namespace shardproof::testing {

/// Four steps, saved after the second; every step changes what is trainable.
class TrainingEvidence : public SoundEvidence {
 public:
  TrainingEvidence() {
    evidence.test_case.subject = "f.py";  // whose gradients nobody knows
    evidence.test_case.steps = 4;
    AddTraining("train",
                {{"ready", 0},
                 {"stepped", 1},
                 {"stepped", 2},
                 {"saved", 2},
                 {"stepped", 3},
                 {"stepped", 4},
                 {"restored", 2},
                 {"resumed", 3},
                 {"resumed", 4}},
                "values");
    AddTraining("again",
                {{"ready", 0}, {"stepped", 1}, {"stepped", 2}, {"stepped", 3}, {"stepped", 4}},
                "values");
    AddTraining("train_resume", {{"restored", 2}}, "resume");
  }

  StageRecord& At(const std::string& phase, int64_t rank, const std::string& key) {
    for (StageRecord& record : Phase(phase).ranks.at(rank).stages) {
      if (record.Key() == key) return record;
    }
    throw std::out_of_range(key);
  }

  /// Changes a value so that it differs from what it was, on all ranks.
  void Change(const std::string& phase, const std::string& key, const std::string& tensor) {
    for (RankEvidence& rank : Phase(phase).ranks) {
      At(phase, rank.rank, key).tensors.at(tensor).digest.lane1 += 1;
    }
  }

 private:
  void AddTraining(const std::string& name,
                   const std::vector<std::pair<std::string, int64_t>>& stages,
                   const std::string& like) {
    PhaseEvidence phase = Phase(like);
    phase.phase = ParsePhase(name).value();
    for (RankEvidence& rank : phase.ranks) {
      const StageRecord ready =
          *rank.Stage(phase.facts().resumes ? Stage::kRestored : Stage::kReady);
      rank.stages.clear();
      for (const auto& [stage, step] : stages) AddStage(rank, ready, stage, step);
    }
    evidence.phases.push_back(std::move(phase));
  }

  static void AddStage(RankEvidence& rank, StageRecord model, const std::string& name,
                       int64_t step) {
    model.name = name;
    model.step = step;
    model.rng = std::to_string(step);
    StageRecord kept = model;
    kept.of = "optimizer";
    kept.tensors.clear();
    kept.optimizer.emplace().groups.push_back({{{"lr", "0.1"}}, {}});
    for (auto& [tensor, state] : model.tensors) {
      const TensorDescriptor& descriptor = rank.Descriptor(state);
      if (descriptor.kind != "parameter" || !descriptor.requires_grad) continue;
      // The digests of a tensor's shards add up: the sum must not depend on how many there are.
      const bool is_cut =
          !descriptor.placements.empty() && descriptor.placements[0].kind.ends_with("shard");
      if (!is_cut || rank.rank == 0) state.digest.lane0 += static_cast<uint64_t>(step);
      kept.optimizer->groups[0].parameters.push_back(tensor);
      if (step > 0) kept.tensors[tensor + ".exp_avg"] = state;
    }
    rank.stages.push_back(std::move(model));
    rank.stages.push_back(std::move(kept));
  }
};

/// The only finding of a property; a test fails if it has none, or several.
inline Finding OnlyFinding(const Evidence& evidence, const std::string& id) {
  const PropertyResult result = JudgeOne(evidence, id);
  EXPECT_EQ(result.judgement.findings().size(), 1u) << result.judgement.reason();
  return result.judgement.findings().empty() ? Finding() : result.judgement.findings()[0];
}

}  // namespace shardproof::testing
