#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "properties/sound_evidence.h"

namespace shardproof::testing {
namespace {

using ::testing::ElementsAre;

constexpr const char* kProperty = "loading.stages_shown";

void Hide(RankEvidence& rank, const std::string& stage) {
  std::erase_if(rank.stages, [&](const StageRecord& record) { return record.name == stage; });
}

TEST(StagesShownTest, NamesTheRanksThatDidNotShowAStage) {
  SoundEvidence sound;
  EXPECT_EQ(JudgeOne(sound.evidence, kProperty).judgement.verdict(), Verdict::kPass);
  for (const int64_t rank : {1, 2}) Hide(sound.Phase("values").ranks[rank], "sharded");
  const Finding finding = FirstFinding(JudgeOne(sound.evidence, kProperty));
  EXPECT_EQ(finding.stage, "sharded");
  EXPECT_THAT(finding.ranks, ElementsAre(1, 2));
}

TEST(StagesShownTest, WhatIsRestoredIsShownToo) {
  SoundEvidence sound;
  for (RankEvidence& rank : sound.Phase("resume").ranks) Hide(rank, "restored");
  EXPECT_EQ(FirstFinding(JudgeOne(sound.evidence, kProperty)).phase, Phase::kResume);
}

TEST(StagesShownTest, TheOptimizerThatIsMadeFirstIsBoundToAModelThatIsShown) {
  SoundEvidence sound;
  sound.evidence.test_case.optimizer = "before-sharding";
  EXPECT_EQ(FirstFinding(JudgeOne(sound.evidence, kProperty)).stage, "bound");
}

TEST(StagesShownTest, ARankThatEndedEarlyNeedNotHaveComeThere) {
  SoundEvidence sound;
  RankEvidence& rank = sound.Phase("values").ranks[1];
  Hide(rank, "ready");
  rank.exit = "signal 9";
  rank.closed = false;
  EXPECT_EQ(JudgeOne(sound.evidence, kProperty).judgement.verdict(), Verdict::kPass);
}

}  // namespace
}  // namespace shardproof::testing
