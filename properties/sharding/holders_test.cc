// Whose tensors are held against whose, where the evidence says it: as a job of stages, of experts
// and of several meshes has it. Three ranks; "norm" is replicated, "w" cut in rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "properties/sound_evidence.h"

namespace shardproof::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const char* const kMatch = "sharding.ranks_match_rank0";

/// Says of a tensor at `ready` which ranks hold it together with this one.
void Say(SoundEvidence& sound, int64_t rank, const char* tensor, GroupsRecord groups) {
  RankEvidence& evidence = sound.Phase("values").ranks.at(static_cast<size_t>(rank));
  sound.Descriptor("values", rank, "ready", tensor).groups =
      static_cast<int64_t>(evidence.groups.size());
  evidence.groups.push_back(std::move(groups));
}

GroupsRecord Alone(int64_t rank) { return {{rank}, {rank}, {rank}}; }

/// Every rank has a "norm" of its own. \param flags  what else is said of it
void SayAlone(SoundEvidence& sound, const GroupsRecord& flags = {}) {
  for (const int64_t rank : {0, 1, 2}) {
    GroupsRecord groups = Alone(rank);
    groups.stated = flags.stated;
    groups.named_once = flags.named_once;
    Say(sound, rank, "norm", std::move(groups));
  }
}

TEST(HoldersTest, OfARanksOwnTensorNothingIsAskedOfOthers) {
  SoundEvidence sound;
  SayAlone(sound);
  sound.Rewrite("values", 2, "ready", "norm", SetF32(1, 8.0f));
  EXPECT_EQ(JudgeOne(sound.evidence, kMatch).judgement.verdict(), Verdict::kPass);
}

TEST(HoldersTest, ReplicasAreHeldAgainstEachOtherWithinTheirGroup) {
  SoundEvidence sound;
  Say(sound, 0, "norm", Alone(0));
  for (const int64_t rank : {1, 2}) Say(sound, rank, "norm", {{rank}, {1, 2}, {1, 2}});
  for (const int64_t rank : {1, 2}) sound.Rewrite("values", rank, "ready", "norm", SetF32(1, 8.0f));
  EXPECT_EQ(JudgeOne(sound.evidence, kMatch).judgement.verdict(), Verdict::kPass);
  sound.Rewrite("values", 2, "ready", "norm", SetF32(1, 9.0f));
  const Finding finding = FirstFinding(JudgeOne(sound.evidence, kMatch));
  EXPECT_THAT(finding.ranks, ElementsAre(2));
  EXPECT_EQ(finding.facts.against.rank, 1);
}

TEST(HoldersTest, ANameThatStandsForOneTensorIsTheSameInEveryGroup) {
  SoundEvidence sound;
  SayAlone(sound, {.named_once = true});
  sound.Rewrite("values", 2, "ready", "norm", SetF32(1, 8.0f));
  EXPECT_THAT(FirstFinding(JudgeOne(sound.evidence, kMatch)).ranks, ElementsAre(2));
}

TEST(HoldersTest, WhereNobodySaidWhichRanksItIsInconclusive) {
  SoundEvidence sound;
  SayAlone(sound, {.stated = false});
  sound.Rewrite("values", 2, "ready", "norm", SetF32(1, 8.0f));
  const PropertyResult result = JudgeOne(sound.evidence, kMatch);
  EXPECT_EQ(result.judgement.verdict(), Verdict::kInconclusive);
  EXPECT_THAT(result.judgement.reason(), HasSubstr("nothing says which ranks"));
}

TEST(HoldersTest, WhatMostHaveIsWhatTheOthersAreHeldAgainst) {
  SoundEvidence sound;
  for (const int64_t rank : {0, 1, 2}) Say(sound, rank, "norm", {{rank}, {0, 1, 2}, {0, 1, 2}});
  sound.Rewrite("values", 0, "ready", "norm", SetF32(1, 8.0f));
  const PropertyResult result = JudgeOne(sound.evidence, kMatch);
  const Finding finding = FirstFinding(result);
  EXPECT_THAT(finding.ranks, ElementsAre(0)) << "the odd one, though it is the first";
  EXPECT_EQ(finding.facts.against.rank, 1);
}

TEST(HoldersTest, WhatEachRankHasOfItsOwnMayDifferAndWhatIsRewrittenIfNoneIsCommon) {
  for (const char* why : {"batches", "own", "rewritten"}) {
    SoundEvidence sound;
    for (const int64_t rank : {0, 1, 2}) {
      Say(sound, rank, "norm", {{rank}, {0, 1, 2}, {0, 1, 2}});
      sound.Descriptor("values", rank, "ready", "norm").varies = why;
    }
    EXPECT_EQ(JudgeOne(sound.evidence, kMatch).judgement.verdict(), Verdict::kPass) << why;
    sound.Rewrite("values", 2, "ready", "norm", SetF32(1, 8.0f));
    const bool is_odd = std::string(why) == "rewritten";
    EXPECT_EQ(JudgeOne(sound.evidence, kMatch).judgement.findings().empty(), !is_odd) << why;
    sound.Rewrite("values", 1, "ready", "norm", SetF32(1, 9.0f));
    const PropertyResult result = JudgeOne(sound.evidence, kMatch);
    EXPECT_EQ(result.judgement.verdict(), is_odd ? Verdict::kInconclusive : Verdict::kPass) << why;
    EXPECT_THAT(result.judgement.reason(), HasSubstr("norm at `ready` was not compared")) << why;
  }
}

TEST(HoldersTest, WhatStepsWriteAndNobodySavesMayDiffer) {
  SoundEvidence sound;
  for (const int64_t rank : {0, 1, 2}) {
    Say(sound, rank, "norm", {{rank}, {0, 1, 2}, {0, 1, 2}});
    TensorDescriptor& descriptor = sound.Descriptor("values", rank, "ready", "norm");
    descriptor.varies = "rewritten";
    descriptor.persistent = false;
    sound.Rewrite("values", rank, "ready", "norm", SetF32(1, 7.0f + static_cast<float>(rank)));
  }
  const PropertyResult result = JudgeOne(sound.evidence, kMatch);
  EXPECT_EQ(result.judgement.verdict(), Verdict::kPass);
  EXPECT_THAT(result.judgement.reason(), HasSubstr("it is not saved, and steps write it"));
}

TEST(HoldersTest, ABufferThatIsNotSavedMayBeOfUnlikeSizes) {
  for (const bool persistent : {false, true}) {
    SoundEvidence sound;
    for (const int64_t rank : {0, 1, 2}) {
      Say(sound, rank, "norm", {{rank}, {0, 1, 2}, {0, 1, 2}});
      TensorDescriptor& descriptor = sound.Descriptor("values", rank, "ready", "norm");
      descriptor.kind = "buffer";
      descriptor.placements.clear();
      descriptor.requires_grad = false;
      descriptor.persistent = persistent;
    }
    sound.Descriptor("values", 2, "ready", "norm").shape[0] += 1;
    EXPECT_EQ(JudgeOne(sound.evidence, kMatch).judgement.findings().empty(), !persistent);
  }
}

TEST(HoldersTest, ShardsOfTwoRanksAreAWholeThatTheThirdNeedNotHave) {
  SoundEvidence sound;
  for (const int64_t rank : {0, 1}) {
    Say(sound, rank, "norm", {{rank}, {0, 1}, {0, 1}});
  }
  sound.Stage("values", 2, "ready").tensors.erase("norm");
  EXPECT_EQ(JudgeOne(sound.evidence, kMatch).judgement.verdict(), Verdict::kPass);
  const PropertyResult result = JudgeOne(sound.evidence, "loading.all_defined");
  for (const Finding& finding : result.judgement.findings()) {
    EXPECT_NE(finding.tensor, "norm") << "declared, and of two ranks alone";
  }
  EXPECT_EQ(JudgeOne(sound.evidence, "loading.keys_match").judgement.verdict(), Verdict::kPass);
  for (const int64_t rank : {0, 1}) sound.Stage("values", rank, "ready").tensors.erase("norm");
  const Finding finding = FirstFinding(JudgeOne(sound.evidence, "loading.keys_match"));
  EXPECT_EQ(finding.kind, "not-in-model");
  EXPECT_THAT(finding.ranks, ElementsAre(0, 1, 2)) << "nobody has it";
}

TEST(HoldersTest, ARankOfTheGroupThatLacksTheTensorIsNamed) {
  SoundEvidence sound;
  for (const int64_t rank : {0, 1}) Say(sound, rank, "norm", {{rank}, {0, 1, 2}, {0, 1, 2}});
  sound.Stage("values", 2, "ready").tensors.erase("norm");
  const Finding finding = FirstFinding(JudgeOne(sound.evidence, "loading.all_defined"));
  EXPECT_EQ(finding.tensor, "norm");
  EXPECT_THAT(finding.ranks, ElementsAre(2));
}

TEST(HoldersTest, GroupsThatContradictEachOtherAreAFinding) {
  SoundEvidence sound;
  Say(sound, 0, "norm", {{0}, {0, 1, 2}, {0, 1, 2}});
  for (const int64_t rank : {1, 2}) Say(sound, rank, "norm", {{rank}, {1, 2}, {1, 2}});
  const Finding finding = FirstFinding(JudgeOne(sound.evidence, kMatch));
  EXPECT_EQ(finding.kind, "unlike-groups");
  EXPECT_THAT(finding.ranks, ElementsAre(0, 1));
}

TEST(HoldersTest, ARankThatHasAnotherPartCannotHaveTheSame) {
  SoundEvidence sound;
  for (const int64_t rank : {0, 1, 2}) {
    Say(sound, rank, "norm", {{0, 1, 2}, {0, 1, 2}, {0, 1, 2}});
  }
  const PropertyResult result = JudgeOne(sound.evidence, kMatch);
  const auto& findings = result.judgement.findings();
  const auto of_groups = std::find_if(findings.begin(), findings.end(), [](const Finding& each) {
    return each.kind == "unlike-groups";
  });
  ASSERT_NE(of_groups, findings.end());
  EXPECT_THAT(of_groups->ranks, ElementsAre(0));
  EXPECT_THAT(of_groups->message, HasSubstr("ranks [1, 2] of them should hold the same as rank 0"));
}

TEST(HoldersTest, AFindingSaysInWhichGroupItsTensorWasJudged) {
  SoundEvidence sound;
  for (const int64_t rank : {0, 1, 2}) Say(sound, rank, "norm", {{rank}, {0, 1, 2}, {0, 1, 2}});
  sound.Rewrite("values", 2, "ready", "norm", SetF32(1, 8.0f));
  const Finding finding = FirstFinding(JudgeOne(sound.evidence, kMatch));
  ASSERT_TRUE(finding.held);
  EXPECT_EQ(HeldInText(*finding.held),
            "rank 2 at dp_shard 2 of mesh dp_shard 3 has it whole, as have ranks 0, 1");
  const auto counts = CountHeld(sound.Phase("values"), "ready");
  ASSERT_EQ(counts.size(), 1u) << "of the others placements and coordinates say it";
  EXPECT_EQ(counts[0].how, "on the mesh dp_shard 3");
  EXPECT_EQ(counts[0].tensors, 1u);
}

TEST(HoldersTest, OfAnExpertThatIsPartsOnAMeshBothAreSaid) {
  SoundEvidence sound;
  for (int64_t rank = 0; rank < 3; ++rank) {
    sound.Descriptor("values", rank, "ready", "w").mesh = 0;
    sound.Phase("values").ranks[static_cast<size_t>(rank)].meshes = {{{{"ep", 3}}, {rank}}};
    Say(sound, rank, "w", {{0, 1, 2}, {rank}, {0, 1, 2}});
  }
  const auto held = FindHeldIn(sound.Phase("values"), "ready", "w", 1);
  ASSERT_TRUE(held);
  EXPECT_EQ(HeldInText(*held), "rank 1 at ep 1 of mesh ep 3; ranks 0, 1, 2 make it up");
  EXPECT_EQ(CountHeld(sound.Phase("values"), "ready")[0].how, "on the mesh ep 3");
  EXPECT_FALSE(FindHeldIn(sound.Phase("values"), "ready", "w", 7));
}

TEST(HoldersTest, TheChunkRuleIsThatOfTheTensorsOwnMesh) {
  SoundEvidence sound;
  // The ranks stand the other way round on a mesh of the tensor's own: rank 0 has the last rows.
  const std::vector<OwnedRun> runs = {{12, 3, 1, 0}, {6, 6, 1, 0}, {0, 6, 1, 0}};
  for (int64_t rank = 0; rank < 3; ++rank) {
    TensorDescriptor& descriptor = sound.Descriptor("values", rank, "ready", "w");
    descriptor.owned = {runs[rank]};
    descriptor.mesh = 0;
    sound.Phase("values").ranks[rank].meshes = {{{{"efsdp", 3}}, {2 - rank}}};
    sound.Rewrite("values", rank, "ready", "w", [](std::string&) {});
  }
  EXPECT_EQ(JudgeOne(sound.evidence, "sharding.chunk_rule").judgement.verdict(), Verdict::kPass);
  sound.Phase("values").ranks[1].meshes[0].coordinates = {0};
  EXPECT_EQ(FirstFinding(JudgeOne(sound.evidence, "sharding.chunk_rule")).kind, "chunk");
}

TEST(HoldersTest, AnUnevenShardIsCutByNoRuleAndMustTile) {
  SoundEvidence sound;
  const std::vector<OwnedRun> runs = {{0, 3, 1, 0}, {3, 3, 1, 0}, {6, 9, 1, 0}};
  for (int64_t rank = 0; rank < 3; ++rank) {
    TensorDescriptor& descriptor = sound.Descriptor("values", rank, "ready", "w");
    descriptor.placements = {{"uneven_shard", 0, 1}};
    descriptor.owned = {runs[rank]};
    sound.Rewrite("values", rank, "ready", "w", [](std::string&) {});
  }
  EXPECT_EQ(JudgeOne(sound.evidence, "sharding.shards_tile").judgement.verdict(), Verdict::kPass);
  const PropertyResult result = JudgeOne(sound.evidence, "sharding.chunk_rule");
  for (const Finding& finding : result.judgement.findings()) {
    EXPECT_NE(finding.tensor, "w");
  }
  sound.Descriptor("values", 1, "ready", "w").owned = {{3, 4, 1, 0}};
  sound.Rewrite("values", 1, "ready", "w", [](std::string&) {});
  EXPECT_EQ(FirstFinding(JudgeOne(sound.evidence, "sharding.shards_tile")).kind, "overlap");
}

}  // namespace
}  // namespace shardproof::testing
