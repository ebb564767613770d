#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "properties/sound_evidence.h"

namespace shardproof::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr const char* kDamageRefused = "fault.damage_refused";

/// A file of the source is damaged where rank 0 reads it, and every rank refuses it so.
SoundEvidence DamagedAnd(const std::string& error) {
  SoundEvidence sound;
  for (RankEvidence& rank : sound.Phase("values").ranks) {
    rank.stages.clear();
    rank.exit = "exit 2";
    rank.errors = {{"bad-input", "loaded", error}};
  }
  sound.Phase("values").ranks[0].faults = {{.id = "file/damage",
                                            .where = "offset:1",
                                            .detail = "f gives tensor 'w' a wrong offset",
                                            .model = "refuse",
                                            .file = "f.safetensors",
                                            .tensors = {"w"}}};
  return sound;
}

std::vector<std::string> KindsOfRefusal(const SoundEvidence& sound) {
  const PropertyResult result = JudgeOne(sound.evidence, kDamageRefused);
  std::vector<std::string> kinds;
  for (const Finding& finding : result.judgement.findings()) kinds.push_back(finding.kind);
  return kinds;
}

TEST(DamageRefusedTest, FileOrTensorIsNamed) {
  EXPECT_THAT(KindsOfRefusal(DamagedAnd("source/f.safetensors: no JSON")), ElementsAre());
  EXPECT_THAT(KindsOfRefusal(DamagedAnd("tensor 'w': offsets overlap")), ElementsAre());
  EXPECT_THAT(KindsOfRefusal(DamagedAnd("tensor 'v': wrong")), ElementsAre("not-named"));
}

TEST(DamageRefusedTest, WhatIsLoadedAllTheSameIsNamedWithItsRanks) {
  SoundEvidence sound = DamagedAnd("source/f.safetensors: no JSON");
  RankEvidence& rank = sound.Phase("values").ranks[1];
  rank.stages = SoundEvidence().Phase("values").ranks[1].stages;
  const Finding finding = FirstFinding(JudgeOne(sound.evidence, kDamageRefused));
  EXPECT_EQ(finding.kind, "accepted");
  EXPECT_THAT(finding.ranks, ElementsAre(1));
  EXPECT_THAT(finding.message, HasSubstr("f gives tensor 'w' a wrong offset"));
}

TEST(DamageRefusedTest, WhoSaysNothingOrIsLostDoesNotRefuse) {
  SoundEvidence sound = DamagedAnd("source/f.safetensors: no JSON");
  sound.Phase("values").ranks[0].errors.clear();
  sound.Phase("values").ranks[2].exit = "signal 11";
  EXPECT_THAT(KindsOfRefusal(sound), UnorderedElementsAre("not-told", "lost"));
}

TEST(DamageRefusedTest, WhereAnotherFaultMayHaveComeFirstNothingIsSaid) {
  SoundEvidence sound = DamagedAnd("rank 1 was killed");
  sound.Phase("values").ranks[1].faults = {
      {"rank/kill", "1@built", "at stage built", "end-the-run"}};
  EXPECT_EQ(JudgeOne(sound.evidence, kDamageRefused).judgement.verdict(), Verdict::kSkip);
  EXPECT_EQ(JudgeOne(SoundEvidence().evidence, kDamageRefused).judgement.verdict(), Verdict::kSkip);
}

}  // namespace
}  // namespace shardproof::testing
