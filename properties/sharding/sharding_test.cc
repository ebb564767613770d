#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "properties/sound_evidence.h"

namespace shardproof::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RanksMatchRank0Test, FindsAReplicaAndAShardThatDiffer) {
  SoundEvidence sound;
  sound.Rewrite("values", 2, "ready", "norm", SetF32(1, 8.0f));
  const Finding replica = FirstFinding(JudgeOne(sound.evidence, "sharding.ranks_match_rank0"));
  EXPECT_EQ(replica.facts.against.what, Against::What::kRank);
  EXPECT_EQ(replica.facts.against.rank, 0);
  EXPECT_THAT(replica.ranks, ElementsAre(2));
  EXPECT_EQ(replica.index, 1u);

  SoundEvidence sharded;
  sharded.Rewrite("values", 1, "ready", "w", SetF32(6, 8.0f));
  const Finding shard = FirstFinding(JudgeOne(sharded.evidence, "sharding.ranks_match_rank0"));
  EXPECT_EQ(shard.facts.against.stage.text(), "loaded");
  EXPECT_THAT(shard.ranks, ElementsAre(1));
  EXPECT_THAT(shard.message, HasSubstr("rank 0 at `loaded`"));
}

TEST(RanksMatchRank0Test, FindsPlacementsThatDiffer) {
  SoundEvidence sound;
  sound.Descriptor("values", 1, "ready", "scale").placements = {};
  const Finding finding = FirstFinding(JudgeOne(sound.evidence, "sharding.ranks_match_rank0"));
  EXPECT_EQ(finding.kind, "unlike-placements");
  EXPECT_THAT(finding.ranks, ElementsAre(1));
}

TEST(ShardsTileTest, NamesGapAndOverlap) {
  SoundEvidence gap;
  gap.Descriptor("values", 1, "ready", "w").owned = {{6, 3, 1, 0}};
  gap.Rewrite("values", 1, "ready", "w", [](std::string&) {});
  const Finding gap_finding = FirstFinding(JudgeOne(gap.evidence, "sharding.shards_tile"));
  EXPECT_EQ(gap_finding.kind, "gap");
  EXPECT_THAT(gap_finding.message, HasSubstr("elements [9, 12)"));
  EXPECT_THAT(gap_finding.ranks, ElementsAre(1, 2));

  SoundEvidence overlap;
  overlap.Descriptor("values", 1, "ready", "w").owned = {{3, 9, 1, 0}};
  overlap.Rewrite("values", 1, "ready", "w", [](std::string&) {});
  const Finding finding = FirstFinding(JudgeOne(overlap.evidence, "sharding.shards_tile"));
  EXPECT_EQ(finding.kind, "overlap");
  EXPECT_THAT(finding.message, HasSubstr("elements [3, 6)"));
  EXPECT_THAT(finding.ranks, ElementsAre(0, 1));
}

TEST(ShardsTileTest, WhatNobodyCanLocateIsNotCompared) {
  SoundEvidence sound;
  for (RankEvidence& rank : sound.Phase("values").ranks) {
    TensorDescriptor& descriptor = sound.Descriptor("values", rank.rank, "ready", "w");
    descriptor.shape.clear();
    descriptor.local_shape.clear();
    descriptor.owned.clear();
    TensorState& state = sound.State("values", rank.rank, "ready", "w");
    state.content = Content::kUndefined;
    state.unreadable = "a nested tensor";
  }
  for (const char* id : {"sharding.shards_tile", "loading.descriptors_kept"}) {
    const PropertyResult result = JudgeOne(sound.evidence, id);
    for (const Finding& finding : result.judgement.findings()) {
      EXPECT_TRUE(finding.kind != "gap" && finding.kind != "local elements") << finding.message;
    }
  }
  const auto tiled = JudgeOne(sound.evidence, "sharding.shards_tile");
  EXPECT_THAT(tiled.judgement.reason(), HasSubstr("a nested tensor"));
}

TEST(ShardsTileTest, CoverageMustAgreeWithTheRuns) {
  SoundEvidence sound;
  sound.State("values", 1, "ready", "w").coverage.lane0 += 1;
  const Finding finding = FirstFinding(JudgeOne(sound.evidence, "sharding.shards_tile"));
  EXPECT_EQ(finding.kind, "coverage");
  EXPECT_THAT(finding.ranks, ElementsAre(1));
}

TEST(ShardsTileTest, JudgesColumnsInOnePeriod) {
  SoundEvidence sound(2, 3);
  const auto columns = [&](uint64_t start, uint64_t length) {
    const int64_t rank = start == 0 ? 0 : 1;
    for (const char* stage : {"sharded", "materialized", "ready", "restored"}) {
      TensorDescriptor& descriptor = sound.Descriptor("values", rank, stage, "w");
      descriptor.placements = {{"shard", 1, 1}};
      descriptor.owned = {{start, length, 5, 3}};
      descriptor.local_shape = {5, static_cast<int64_t>(length)};
      if (std::string(stage) == "ready" || std::string(stage) == "restored") {
        sound.Rewrite("values", rank, stage, "w", [](std::string&) {});
      }
    }
  };
  columns(0, 2);
  columns(2, 1);
  for (const char* id : {"sharding.shards_tile", "sharding.chunk_rule", "loading.equals_source",
                         "loading.descriptors_kept"}) {
    EXPECT_EQ(JudgeOne(sound.evidence, id).judgement.verdict(), Verdict::kPass) << id;
  }
  columns(1, 2);
  EXPECT_EQ(FirstFinding(JudgeOne(sound.evidence, "sharding.shards_tile")).kind, "overlap");
  EXPECT_EQ(FirstFinding(JudgeOne(sound.evidence, "sharding.chunk_rule")).kind, "chunk");
}

TEST(ChunkRuleTest, FloorPlusRemainderIsNotChunk) {
  // 5 rows over 3 ranks: chunk gives 2, 2, 1; this gives 1, 2, 2, which tiles just as well.
  SoundEvidence sound;
  const std::vector<OwnedRun> runs = {{0, 3, 1, 0}, {3, 6, 1, 0}, {9, 6, 1, 0}};
  for (int64_t rank = 0; rank < 3; ++rank) {
    sound.Descriptor("values", rank, "ready", "w").owned = {runs[rank]};
    sound.Rewrite("values", rank, "ready", "w", [](std::string&) {});
  }
  EXPECT_EQ(JudgeOne(sound.evidence, "sharding.shards_tile").judgement.verdict(), Verdict::kPass);
  const PropertyResult result = JudgeOne(sound.evidence, "sharding.chunk_rule");
  ASSERT_EQ(result.judgement.findings().size(), 3u);
  EXPECT_EQ(result.judgement.findings()[0].expected, "elements [0, 6)");
}

TEST(ChunkRuleTest, AStridedShardNeedsAxesToItsRight) {
  SoundEvidence sound;
  TensorDescriptor& descriptor = sound.Descriptor("values", 1, "ready", "w");
  descriptor.placements = {{"strided_shard", 0, 3}};
  const PropertyResult result = JudgeOne(sound.evidence, "sharding.chunk_rule");
  ASSERT_EQ(result.judgement.findings().size(), 1u);
  EXPECT_EQ(FirstFinding(result).kind, "malformed");
  EXPECT_THAT(FirstFinding(result).message, HasSubstr("3 pieces of dim 0"));
}

TEST(ChunkRuleTest, SkipsWhereNothingIsSharded) {
  SoundEvidence sound;
  for (const char* phase : {"values", "plain", "resume"}) {
    for (RankEvidence& rank : sound.Phase(phase).ranks) {
      for (TensorDescriptor& descriptor : rank.descriptors) descriptor.placements = {};
    }
  }
  EXPECT_EQ(JudgeOne(sound.evidence, "sharding.chunk_rule").judgement.verdict(), Verdict::kSkip);
}

TEST(CollectivesInOrderTest, FindsSwappedTensorsOfEqualSize) {
  SoundEvidence sound;
  std::vector<CollectiveRecord>& own = sound.Phase("values").ranks[2].collectives;
  std::swap(own[0].tensors, own[1].tensors);
  const PropertyResult result = JudgeOne(sound.evidence, "sharding.collectives_in_order");
  EXPECT_EQ(result.judgement.findings().size(), 1u);
  EXPECT_EQ(FirstFinding(result).kind, "order");
  EXPECT_THAT(FirstFinding(result).ranks, ElementsAre(2));
  EXPECT_THAT(FirstFinding(result).message, HasSubstr("collective 0"));
}

TEST(CollectivesInOrderTest, ARankThatMakesFewerIsNamedIfItClosed) {
  SoundEvidence sound;
  sound.Phase("values").ranks[1].collectives.pop_back();
  EXPECT_EQ(FirstFinding(JudgeOne(sound.evidence, "sharding.collectives_in_order")).kind, "absent");
  sound.Phase("values").ranks[1].closed = false;
  EXPECT_EQ(JudgeOne(sound.evidence, "sharding.collectives_in_order").judgement.verdict(),
            Verdict::kInconclusive);
}

TEST(CollectivesInOrderTest, AGroupIsJudgedAmongItsOwnRanks) {
  SoundEvidence sound;
  std::vector<RankEvidence>& ranks = sound.Phase("values").ranks;
  for (RankEvidence& rank : ranks) rank.collectives.clear();
  // Ranks 0 and 1 make two together, rank 2 makes one of its own: nobody owes anybody anything.
  for (const int64_t rank : {0, 1}) {
    ranks[rank].collectives = {{0, "broadcast", 0, "F32", 4, {}, {0, 1}},
                               {1, "allreduce", -1, "F32", 8, {}, {0, 1}}};
  }
  ranks[2].collectives = {{0, "allgather", -1, "F32", 2, {}, {2}}};
  EXPECT_EQ(JudgeOne(sound.evidence, "sharding.collectives_in_order").judgement.verdict(),
            Verdict::kPass);
  ranks[1].collectives.back().count = 9;
  const PropertyResult result = JudgeOne(sound.evidence, "sharding.collectives_in_order");
  EXPECT_EQ(FirstFinding(result).kind, "order");
  EXPECT_THAT(FirstFinding(result).message, HasSubstr("collective 1"));
}

TEST(CollectivesInOrderTest, NoRecordsAreInconclusive) {
  SoundEvidence sound;
  for (RankEvidence& rank : sound.Phase("values").ranks) rank.collectives.clear();
  EXPECT_EQ(JudgeOne(sound.evidence, "sharding.collectives_in_order").judgement.verdict(),
            Verdict::kInconclusive);
}

TEST(ReplicasTest, OnTwoAxesEachReplicaIsJudgedOnItsOwn) {
  // dp_replicate 2 x dp_shard 3: ranks 0-2 and 3-5 each hold everything.
  SoundEvidence sound(3, 2);
  PhaseEvidence& values = sound.Phase("values");
  values.mesh = {{"dp_replicate", 2}, {"dp_shard", 3}};
  for (int64_t r = 0; r < 3; ++r) {
    values.ranks[r].coordinates = {0, r};
    values.ranks[r].world_size = 6;
    for (TensorDescriptor& descriptor : values.ranks[r].descriptors) {
      if (!descriptor.placements.empty()) {
        descriptor.placements.insert(descriptor.placements.begin(), {"replicate", 0, 1});
      }
    }
  }
  for (int64_t r = 0; r < 3; ++r) {
    RankEvidence copy = values.ranks[r];
    copy.rank = r + 3;
    copy.coordinates = {1, r};
    values.ranks.push_back(copy);
  }
  for (const char* id : {"sharding.shards_tile", "sharding.chunk_rule", "loading.equals_source",
                         "sharding.ranks_match_rank0", "checkpoint.round_trip"}) {
    EXPECT_EQ(JudgeOne(sound.evidence, id).judgement.verdict(), Verdict::kPass) << id;
  }
  sound.Rewrite("values", 4, "ready", "w", SetF32(8, 2.0f));
  const Finding finding = FirstFinding(JudgeOne(sound.evidence, "loading.equals_source"));
  EXPECT_THAT(finding.ranks, ElementsAre(4));
  EXPECT_EQ(finding.index, 8u);
}

}  // namespace
}  // namespace shardproof::testing
