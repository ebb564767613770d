#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "properties/sound_evidence.h"

namespace shardproof::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kProperty = "checkpoint.own_save_accepted";

/// All ranks of a phase refuse what was saved, as one of them has found it.
void Refuse(SoundEvidence& sound, const std::string& phase, const std::string& message) {
  for (RankEvidence& rank : sound.Phase(phase).ranks) {
    rank.errors.push_back({"bad-input", "restored", message});
  }
}

TEST(OwnSaveAcceptedTest, ARefusalNamesTheTensorAndWhatIsReallyThere) {
  SoundEvidence sound;
  Refuse(sound, "values", "rank 0: saved/model.safetensors: 'w' is torn, and 'nothing' is absent");
  const PropertyResult result = JudgeOne(sound.evidence, kProperty);
  ASSERT_EQ(result.judgement.findings().size(), 1u);
  const Finding finding = FirstFinding(result);
  EXPECT_EQ(finding.tensor, "w");
  EXPECT_EQ(finding.stage, "restored");
  EXPECT_THAT(finding.ranks, ElementsAre(0, 1, 2));
  EXPECT_THAT(finding.message, HasSubstr("itself: saved/model.safetensors: 'w' is torn"));
  EXPECT_THAT(finding.message, HasSubstr("own reader finds F32 [5, 3] there"));
}

TEST(OwnSaveAcceptedTest, OnAnotherMeshToo) {
  SoundEvidence sound;
  Refuse(sound, "resume", "saved: no JSON");
  const Finding finding = FirstFinding(JudgeOne(sound.evidence, kProperty));
  EXPECT_EQ(finding.phase, Phase::kResume);
  EXPECT_EQ(finding.tensor, "");
  EXPECT_THAT(finding.message, HasSubstr("own reader reads all of it"));
}

TEST(OwnSaveAcceptedTest, WhatTheVerifierCannotReadEitherIsTheSavesMistake) {
  SoundEvidence sound;
  sound.evidence.oracle.saved[Phase::kValues].error = "cut short";
  Refuse(sound, "values", "saved: cut short");
  EXPECT_THAT(FirstFinding(JudgeOne(sound.evidence, kProperty)).message,
              HasSubstr("nor can the verifier's own reader: cut short"));
}

TEST(OwnSaveAcceptedTest, OtherErrorsOtherStagesAndWhatAFaultDamagedAreNotItsAffair) {
  SoundEvidence sound;
  EXPECT_EQ(JudgeOne(sound.evidence, kProperty).judgement.verdict(), Verdict::kPass);
  sound.Phase("values").ranks[0].errors = {{"failed", "restored", "disk: read error"},
                                           {"bad-input", "built", "config.json: no JSON"}};
  EXPECT_EQ(JudgeOne(sound.evidence, kProperty).judgement.verdict(), Verdict::kPass);
  Refuse(sound, "resume", "saved: 'w' is torn");
  sound.Phase("values").ranks[1].faults.push_back({.id = "file/rot", .where = "0"});
  EXPECT_EQ(JudgeOne(sound.evidence, kProperty).judgement.verdict(), Verdict::kSkip);
}

}  // namespace
}  // namespace shardproof::testing
