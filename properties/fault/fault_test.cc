#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "properties/sound_evidence.h"

namespace shardproof::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(EveryRankFinishesTest, TheRootCauseComesFirst) {
  SoundEvidence sound;
  std::vector<RankEvidence>& ranks = sound.Phase("values").ranks;
  ranks[0].errors = {{"peer", "ready", "broadcast of w: connection closed by peer"}};
  ranks[0].exit = "exit 3";
  ranks[2].errors = {{"failed", "ready", "broadcast of w: Connection closed by peer [10.0.0.2]"}};
  ranks[2].exit = "exit 3";
  ranks[1].errors = {{"failed", "materialized", "allocating w: out of memory"}};
  ranks[1].exit = "exit 1";
  const PropertyResult result = JudgeOne(sound.evidence, "fault.every_rank_finishes");
  ASSERT_EQ(result.judgement.findings().size(), 2u);
  const Finding& root = result.judgement.findings()[0];
  EXPECT_THAT(root.ranks, ElementsAre(1));
  EXPECT_THAT(root.message, HasSubstr("out of memory"));
  const Finding& consequence = result.judgement.findings()[1];
  EXPECT_THAT(consequence.ranks, ElementsAre(0, 2));
  EXPECT_THAT(consequence.message, HasSubstr("consequence of what happened on rank 1"));
}

TEST(EveryRankFinishesTest, ClassesAndKinds) {
  const auto judge = [](const std::function<void(RankEvidence&)>& change) {
    SoundEvidence sound;
    change(sound.Phase("values").ranks[1]);
    const PropertyResult result = JudgeOne(sound.evidence, "fault.every_rank_finishes");
    EXPECT_EQ(result.judgement.findings().size(), 1u);
    const Finding& finding = result.judgement.findings().at(0);
    EXPECT_THAT(finding.ranks, ElementsAre(1));
    return finding.kind + "/" + finding.failure_class;
  };
  EXPECT_EQ(judge([](RankEvidence& rank) { rank.exit = "signal 9"; }), "lost/infrastructure");
  EXPECT_EQ(judge([](RankEvidence& rank) { rank.exit = "hang"; }), "hang/infrastructure");
  EXPECT_EQ(judge([](RankEvidence& rank) { rank.exit = "exit 3"; }), "exit/infrastructure");
  EXPECT_EQ(judge([](RankEvidence& rank) {
              rank.exit = "";
              rank.closed = false;
            }),
            "lost/infrastructure");
  EXPECT_EQ(judge([](RankEvidence& rank) { rank.closed = false; }), "unclosed/code");
  EXPECT_EQ(judge([](RankEvidence& rank) { rank.damage = "facts line 3"; }), "damage/verifier");
  EXPECT_EQ(judge([](RankEvidence& rank) {
              rank.errors = {{"bad-input", "built", "header"}};
              rank.exit = "exit 2";
            }),
            "error/input");
}

TEST(EveryRankFinishesTest, ARankThatLeftNothingIsLost) {
  SoundEvidence sound;
  sound.Phase("values").ranks.pop_back();
  const PropertyResult result = JudgeOne(sound.evidence, "fault.every_rank_finishes");
  ASSERT_EQ(result.judgement.findings().size(), 1u);
  EXPECT_THAT(result.judgement.findings()[0].ranks, ElementsAre(2));
}

TEST(EveryFaultFiresTest, AFaultThatNeverFiredIsInconclusive) {
  SoundEvidence sound;
  sound.evidence.test_case.faults = {{"disk/enospc", "rank=1"}};
  const PropertyResult result = JudgeOne(sound.evidence, "fault.every_fault_fires");
  EXPECT_EQ(result.judgement.verdict(), Verdict::kInconclusive);
  EXPECT_THAT(result.judgement.reason(), HasSubstr("disk/enospc@rank=1 never fired"));
}

}  // namespace
}  // namespace shardproof::testing
