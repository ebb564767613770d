#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "properties/sound_evidence.h"

namespace shardproof::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RoundTripTest, NamesTheElementOfASavedTensor) {
  SoundEvidence sound;
  sound.RewriteSaved("big", SetF32(1100, 0.0f));
  const PropertyResult first = JudgeOne(sound.evidence, "checkpoint.round_trip");
  const std::vector<CaptureRequest> captures = WantedCaptures({first});
  ASSERT_EQ(captures.size(), 1u);
  EXPECT_EQ(captures[0].byte_start, 4096u);
  sound.Capture(captures);
  const Finding finding = FirstFinding(JudgeOne(sound.evidence, "checkpoint.round_trip"));
  EXPECT_EQ(finding.stage, "saved");
  EXPECT_EQ(finding.index, 1100u);
  EXPECT_THAT(finding.explanation, HasSubstr("zeros"));
}

TEST(RoundTripTest, KeysAreABijection) {
  SoundEvidence absent;
  absent.evidence.oracle.saved[Phase::kValues].tensors.erase("lost");
  EXPECT_EQ(FirstFinding(JudgeOne(absent.evidence, "checkpoint.round_trip")).kind, "absent");

  SoundEvidence extra;
  auto& tensors = extra.evidence.oracle.saved[Phase::kValues].tensors;
  tensors["expert_bias"] = tensors["w"];
  EXPECT_EQ(FirstFinding(JudgeOne(extra.evidence, "checkpoint.round_trip")).kind, "extra");

  SoundEvidence duplicate;
  auto& twice = duplicate.evidence.oracle.saved[Phase::kValues].tensors;
  twice["head"] = twice["embed"];
  EXPECT_EQ(FirstFinding(JudgeOne(duplicate.evidence, "checkpoint.round_trip")).kind, "duplicate");

  SoundEvidence cast;
  cast.evidence.oracle.saved[Phase::kValues].tensors["w"].dtype = "BF16";
  EXPECT_EQ(FirstFinding(JudgeOne(cast.evidence, "checkpoint.round_trip")).kind, "dtype");
}

TEST(RoundTripTest, RestoredMustEqualReady) {
  SoundEvidence sound;
  sound.Rewrite("values", 1, "restored", "expert_bias", SetF32(0, 0.5f));
  const Finding finding = FirstFinding(JudgeOne(sound.evidence, "checkpoint.round_trip"));
  EXPECT_EQ(finding.stage, "restored");
  EXPECT_THAT(finding.ranks, ElementsAre(1));
}

TEST(RoundTripTest, NothingSavedIsInconclusiveAndUnreadableFails) {
  SoundEvidence sound;
  sound.evidence.oracle.saved.clear();
  EXPECT_EQ(JudgeOne(sound.evidence, "checkpoint.round_trip").judgement.verdict(),
            Verdict::kInconclusive);
  sound.evidence.oracle.saved[Phase::kValues].error = "no index";
  EXPECT_EQ(FirstFinding(JudgeOne(sound.evidence, "checkpoint.round_trip")).kind, "unreadable");
}

TEST(StateDictWholeTest, WhatARankGivesForSavingIsHeldAgainstItsOwnModel) {
  SoundEvidence sound;
  sound.evidence.oracle.declared.clear();  // as of a script
  sound.Rewrite("values", 1, "ready", "expert_bias", SetF32(0, 0.5f));
  for (RankEvidence& rank : sound.Phase("values").ranks) {
    StageRecord given = *rank.Stage(Stage::kReady);
    given.of = "state_dict";
    rank.stages.push_back(given);
  }
  const auto judged = [&] { return JudgeOne(sound.evidence, "checkpoint.state_dict_whole"); };
  EXPECT_TRUE(judged().judgement.findings().empty());
  sound.Phase("values").ranks[1].stages.back().tensors.at("expert_bias") =
      sound.State("values", 0, "ready", "expert_bias");
  EXPECT_THAT(FirstFinding(judged()).ranks, ElementsAre(1));
}

CheckpointRecord& SavedOf(SoundEvidence& sound) {
  return sound.evidence.oracle.saved[Phase::kValues];
}

TEST(FilesWellFormedTest, DataBeginsAtAMultipleOfEight) {
  SoundEvidence sound;
  SavedOf(sound).files["model-00002-of-00002.safetensors"].data_start = 252;
  const Finding finding = FirstFinding(JudgeOne(sound.evidence, "checkpoint.files_well_formed"));
  EXPECT_EQ(finding.kind, "unaligned");
  EXPECT_THAT(finding.message, HasSubstr("model-00002-of-00002.safetensors"));
  EXPECT_EQ(finding.expected, "256");
}

TEST(FilesWellFormedTest, OnlyOneTensorAloneMayBeLargerThanTheLimit) {
  SoundEvidence sound;
  sound.evidence.test_case.max_file_bytes = 100;
  EXPECT_EQ(FirstFinding(JudgeOne(sound.evidence, "checkpoint.files_well_formed")).kind,
            "too-large");
  SavedOf(sound).files["model-00001-of-00002.safetensors"].tensors = 1;
  EXPECT_EQ(JudgeOne(sound.evidence, "checkpoint.files_well_formed").judgement.verdict(),
            Verdict::kPass);
}

TEST(FilesWellFormedTest, TheIndexHasTheSizeOfAllTensorsButTheAdapters) {
  SoundEvidence sound;
  SavedOf(sound).files["adapter/adapter_model.safetensors"] = {64, 8, 1};
  EXPECT_EQ(JudgeOne(sound.evidence, "checkpoint.files_well_formed").judgement.verdict(),
            Verdict::kPass);
  SavedOf(sound).total_size = 12108 + 576;
  EXPECT_EQ(FirstFinding(JudgeOne(sound.evidence, "checkpoint.files_well_formed")).kind, "total");
  SavedOf(sound).total_size.reset();
  EXPECT_EQ(FirstFinding(JudgeOne(sound.evidence, "checkpoint.files_well_formed")).seen, "none");
}

TEST(ReshardTest, NamesRankAndElementOnTheOtherMesh) {
  SoundEvidence sound;
  sound.Rewrite("resume", 1, "restored", "w", SetF32(10, 4.0f));
  const Finding finding = FirstFinding(JudgeOne(sound.evidence, "checkpoint.reshard"));
  EXPECT_EQ(finding.phase, Phase::kResume);
  EXPECT_THAT(finding.ranks, ElementsAre(1));
  EXPECT_EQ(finding.index, 10u);
}

TEST(ReshardTest, FindsWhatOnlyTheFirstPhaseKnows) {
  SoundEvidence sound;
  sound.Rewrite("resume", 0, "restored", "expert_bias", SetF32(1, 4.0f));
  const Finding finding = FirstFinding(JudgeOne(sound.evidence, "checkpoint.reshard"));
  EXPECT_EQ(finding.tensor, "expert_bias");
  EXPECT_THAT(finding.message, HasSubstr("`ready` of phase values"));
}

TEST(ReshardTest, SkipsIfNotAskedForAndIsInconclusiveIfItShouldBeThere) {
  SoundEvidence sound;
  sound.evidence.phases.erase(sound.evidence.phases.begin() + 2);
  EXPECT_EQ(JudgeOne(sound.evidence, "checkpoint.reshard").judgement.verdict(),
            Verdict::kInconclusive);
  sound.evidence.test_case.resume_mesh.clear();
  EXPECT_EQ(JudgeOne(sound.evidence, "checkpoint.reshard").judgement.verdict(), Verdict::kSkip);
}

}  // namespace
}  // namespace shardproof::testing
