#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "properties/sound_evidence.h"

namespace shardproof::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kSourceAccepted = "loading.source_accepted";

Verdict VerdictOnSource(const SoundEvidence& sound) {
  return JudgeOne(sound.evidence, kSourceAccepted).judgement.verdict();
}

/// All ranks of a phase refuse, as one of them has found it.
void RefuseSource(SoundEvidence& sound, const std::string& message,
                  const std::string& stage = "loaded") {
  for (RankEvidence& rank : sound.Phase("plain").ranks) {
    rank.errors.push_back({"bad-input", stage, message});
  }
}

TEST(SourceAcceptedTest, ARefusalNamesTheTensorAndWhatIsReallyThere) {
  SoundEvidence sound;
  EXPECT_EQ(VerdictOnSource(sound), Verdict::kPass);
  RefuseSource(sound, "rank 0: source/model.safetensors: 'w' is torn, and 'nothing' is absent");
  const PropertyResult result = JudgeOne(sound.evidence, kSourceAccepted);
  ASSERT_EQ(result.judgement.findings().size(), 1u);
  const Finding finding = FirstFinding(result);
  EXPECT_EQ(finding.tensor, "w");
  EXPECT_EQ(finding.phase, Phase::kPlain);
  EXPECT_THAT(finding.ranks, ElementsAre(0, 1, 2));
  EXPECT_THAT(finding.message, HasSubstr("sound source: source/model.safetensors: 'w' is torn"));
  EXPECT_THAT(finding.message, HasSubstr("own reader finds F32 [5, 3] there"));
}

TEST(SourceAcceptedTest, AKeyIsNamedByItsTensorAndAFileByItself) {
  SoundEvidence sound;
  sound.evidence.oracle.source.tensors.at("w").keys = {"part.0", "part.1"};
  RefuseSource(sound, "tensor 'part.1': the checkpoint has shape [1], the model [2]", "built");
  EXPECT_EQ(FirstFinding(JudgeOne(sound.evidence, kSourceAccepted)).tensor, "w");

  SoundEvidence of_file;
  of_file.evidence.oracle.source.files["a.safetensors"] = {};
  RefuseSource(of_file, "source/a.safetensors: header of 8 bytes", "");
  const Finding finding = FirstFinding(JudgeOne(of_file.evidence, kSourceAccepted));
  EXPECT_EQ(finding.tensor, "");
  EXPECT_THAT(finding.message, HasSubstr("own reader reads all of it"));
}

TEST(SourceAcceptedTest, WhatTheVerifierHasNotReadItDoesNotCallSound) {
  SoundEvidence sound;
  RefuseSource(sound, "source/optimizer.bin: no pickle");
  RefuseSource(sound, "source/shardproof.seal.json: tensor 'w': expected digest 1, found 2");
  RefuseSource(sound, "saved: 'w' is torn", "restored");
  EXPECT_EQ(VerdictOnSource(sound), Verdict::kPass);
  RefuseSource(sound, "source/model.safetensors: 'w' is torn");
  EXPECT_EQ(VerdictOnSource(sound), Verdict::kFail);
  sound.evidence.oracle.source.error = "cut short";
  EXPECT_EQ(VerdictOnSource(sound), Verdict::kSkip);
}

TEST(SourceAcceptedTest, WhatAFaultDamagedIsNotSound) {
  SoundEvidence sound;
  RefuseSource(sound, "source/model.safetensors: 'w' is torn");
  sound.Phase("values").ranks[1].faults.push_back({.id = "file/rot", .where = "0"});
  EXPECT_EQ(VerdictOnSource(sound), Verdict::kSkip);
}

}  // namespace
}  // namespace shardproof::testing
