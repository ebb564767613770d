#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "properties/sound_evidence.h"

namespace shardproof::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(HostPeakTest, NamesTheRankBeyondTheBound) {
  SoundEvidence sound;
  sound.Phase("memory").ranks[2].memory->peak_bytes += 3 << 20;
  const PropertyResult result = JudgeOne(sound.evidence, "memory.host_peak");
  ASSERT_EQ(result.judgement.findings().size(), 1u);
  EXPECT_THAT(result.judgement.findings()[0].ranks, ElementsAre(2));
  EXPECT_THAT(result.judgement.findings()[0].message, HasSubstr("7.0 MiB"));
}

TEST(HostPeakTest, TellsOfTheRankFurthestBeyond) {
  SoundEvidence sound;
  auto& ranks = sound.Phase("memory").ranks;
  ranks[1].memory->peak_bytes += 4 << 20;
  ranks[2].memory->peak_bytes += 3 << 20;
  const PropertyResult result = JudgeOne(sound.evidence, "memory.host_peak");
  ASSERT_EQ(result.judgement.findings().size(), 1u);
  EXPECT_THAT(result.judgement.findings()[0].ranks, ElementsAre(1, 2));
  EXPECT_THAT(result.judgement.findings()[0].message, HasSubstr("8.0 MiB above idle on rank 1"));
  EXPECT_GT(result.judgement.findings()[0].facts.limit_bytes, 0u);
}

TEST(HostPeakTest, SkipsAModelOfWhichAFullCopyWouldNotShow) {
  SoundEvidence sound;
  const uint64_t allowed =
      sound.evidence.test_case.bucket_bytes + sound.evidence.test_case.host_slack_bytes;
  auto& ranks = sound.Phase("memory").ranks;
  for (auto& rank : ranks) rank.memory->own_shard_bytes = allowed / ranks.size();
  const PropertyResult result = JudgeOne(sound.evidence, "memory.host_peak");
  EXPECT_EQ(result.judgement.verdict(), Verdict::kSkip);
  EXPECT_THAT(result.judgement.reason(), HasSubstr("would not show"));
}

TEST(HostPeakTest, SkipsThePlainStrategyAndNeedsEveryRecord) {
  SoundEvidence sound;
  sound.Phase("memory").ranks[1].memory.reset();
  EXPECT_EQ(JudgeOne(sound.evidence, "memory.host_peak").judgement.verdict(),
            Verdict::kInconclusive);
  sound.Phase("memory").strategy = "plain";
  EXPECT_EQ(JudgeOne(sound.evidence, "memory.host_peak").judgement.verdict(), Verdict::kSkip);
  sound.evidence.phases.pop_back();
  EXPECT_EQ(JudgeOne(sound.evidence, "memory.host_peak").judgement.verdict(), Verdict::kSkip);
}

TEST(NoPageCommitTest, FindsCommittedPlaceholders) {
  SoundEvidence sound;
  sound.State("memory", 1, "materialized", "big").committed_bytes = 12288;
  const PropertyResult result = JudgeOne(sound.evidence, "memory.no_page_commit");
  ASSERT_EQ(result.judgement.findings().size(), 1u);
  EXPECT_EQ(result.judgement.findings()[0].tensor, "big");
  EXPECT_THAT(result.judgement.findings()[0].ranks, ElementsAre(1));
}

TEST(NoPageCommitTest, UnrecordedPagesAreInconclusive) {
  SoundEvidence sound;
  sound.State("memory", 1, "materialized", "big").committed_bytes.reset();
  EXPECT_EQ(JudgeOne(sound.evidence, "memory.no_page_commit").judgement.verdict(),
            Verdict::kInconclusive);
}

}  // namespace
}  // namespace shardproof::testing
