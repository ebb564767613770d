// The offload properties on a body of evidence in which everything holds, and with one thing
// broken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "properties/training_evidence.h"

namespace shardproof::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kEqual = "offload.equals_on_device";
constexpr const char* kWhere = "offload.state_where_asked";

/// Half of the optimizer's state is the host's, the rest the device's; of the job on the device,
/// all.
class OffloadEvidence : public TrainingEvidence {
 public:
  OffloadEvidence() {
    evidence.test_case.subject = "reference";
    evidence.test_case.device = "isolated";
    evidence.test_case.training.offload = 0.5;
    PhaseEvidence on_device = Phase("again");
    on_device.phase = Phase::kTrainOnDevice;
    evidence.phases.push_back(on_device);
    for (PhaseEvidence& phase : evidence.phases) {
      for (RankEvidence& rank : phase.ranks) Place(phase.facts().offloads, rank);
    }
  }

 private:
  /// The largest goes to the host: that is at least half of it.
  static void Place(bool offloads, RankEvidence& rank) {
    for (StageRecord& record : rank.stages) {
      uint64_t most = 0;
      for (const auto& [name, state] : record.tensors) {
        most = std::max(most, rank.Descriptor(state).ElementCount());
      }
      for (auto& [name, state] : record.tensors) {
        const bool is_largest = rank.Descriptor(state).ElementCount() == most;
        state.device = offloads && is_largest ? "cpu" : "isolated";
      }
    }
  }
};

Finding First(const Evidence& evidence, const std::string& id) {
  const auto found = JudgeOne(evidence, id).judgement.findings();
  EXPECT_FALSE(found.empty()) << JudgeOne(evidence, id).judgement.reason();
  return found.empty() ? Finding() : found[0];
}

TEST(OffloadTest, SoundEvidencePasses) {
  const OffloadEvidence sound;
  for (const char* id : {kEqual, kWhere}) {
    const PropertyResult result = JudgeOne(sound.evidence, id);
    EXPECT_EQ(result.judgement.verdict(), Verdict::kPass)
        << id << ": " << result.judgement.reason();
    EXPECT_GT(result.judgement.comparisons(), 0u) << id;
  }
}

TEST(OffloadTest, NothingOffloadedIsASkipAndNoStepsAreInconclusive) {
  const TrainingEvidence all_on_device;
  OffloadEvidence idle;
  for (RankEvidence& rank : idle.Phase("train_on_device").ranks) rank.stages.clear();
  for (const char* id : {kEqual, kWhere}) {
    EXPECT_EQ(JudgeOne(all_on_device.evidence, id).judgement.verdict(), Verdict::kSkip) << id;
  }
  EXPECT_EQ(JudgeOne(idle.evidence, kEqual).judgement.verdict(), Verdict::kInconclusive);
  OffloadEvidence all_host;
  all_host.evidence.test_case.device = "cpu";
  EXPECT_EQ(JudgeOne(all_host.evidence, kWhere).judgement.verdict(), Verdict::kSkip);
}

TEST(OffloadTest, NamesAStepThatIsAnotherOnTheHost) {
  for (const Phase phase : {Phase::kTrain, Phase::kAgain}) {
    OffloadEvidence raced;
    raced.Change(NameOf(phase), "stepped@2.optimizer", "w.exp_avg");
    const Finding finding = First(raced.evidence, kEqual);
    EXPECT_EQ(finding.tensor, "w.exp_avg");
    EXPECT_EQ(finding.phase, phase);
    EXPECT_EQ(finding.stage, "stepped@2.optimizer");
  }
}

TEST(OffloadTest, NamesStateThatIsNotWhereItWasAskedFor) {
  OffloadEvidence none;
  for (RankEvidence& rank : none.Phase("train").ranks) {
    for (StageRecord& record : rank.stages) {
      for (auto& [name, state] : record.tensors) state.device = "isolated";
    }
  }
  EXPECT_EQ(First(none.evidence, kWhere).kind, "too-little");

  OffloadEvidence some;
  for (RankEvidence& rank : some.Phase("train_on_device").ranks) {
    for (StageRecord& record : rank.stages) {
      for (auto& [name, state] : record.tensors) state.device = "cpu";
    }
  }
  EXPECT_EQ(First(some.evidence, kWhere).kind, "too-much");

  OffloadEvidence split;
  auto& state = split.At("train", 1, "stepped@1.optimizer").tensors.at("w.exp_avg");
  state.device = state.device == "cpu" ? "isolated" : "cpu";
  const Finding finding = First(split.evidence, kWhere);
  EXPECT_EQ(finding.kind, "apart");
  EXPECT_THAT(finding.ranks, ElementsAre(1));
  EXPECT_THAT(finding.message, HasSubstr("rank 1 has w.exp_avg"));
}

}  // namespace
}  // namespace shardproof::testing
