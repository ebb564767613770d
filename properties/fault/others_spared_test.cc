#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "properties/sound_evidence.h"

namespace shardproof::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr const char* kOthersSpared = "fault.others_spared";
constexpr const char* kRefusal = "rank 0: /tmp/saved: holds 'notes.txt', which no save writes";

/// Rank 0 finds something in the way of its save, and every rank says so.
SoundEvidence InTheWay(bool harmless, const std::string& error) {
  SoundEvidence sound;
  for (RankEvidence& rank : sound.Phase("values").ranks) {
    if (error.empty()) continue;
    rank.exit = "exit 2";
    rank.errors = {{"bad-input", "saved", error}};
  }
  sound.Phase("values").ranks[0].faults = {{.id = "file/occupied",
                                            .where = "foreign:0",
                                            .detail = "/tmp/saved is a folder of somebody's files",
                                            .model = "spare",
                                            .file = "/tmp/saved",
                                            .harmless = harmless}};
  return sound;
}

std::vector<std::string> Kinds(const SoundEvidence& sound) {
  const PropertyResult result = JudgeOne(sound.evidence, kOthersSpared);
  std::vector<std::string> kinds;
  for (const Finding& finding : result.judgement.findings()) kinds.push_back(finding.kind);
  return kinds;
}

TEST(OthersSparedTest, WhatNoSaveHasWrittenIsNamed) {
  EXPECT_THAT(Kinds(InTheWay(false, kRefusal)), ElementsAre());
  EXPECT_THAT(Kinds(InTheWay(false, "rank 0: it is in the way")), ElementsAre("not-named"));
  EXPECT_THAT(Kinds(InTheWay(false, "")), ElementsAre("not-told"));
}

TEST(OthersSparedTest, WhatASaveMayReplaceIsNotRefused) {
  EXPECT_THAT(Kinds(InTheWay(true, "")), ElementsAre());
  EXPECT_THAT(Kinds(InTheWay(true, kRefusal)), ElementsAre("refused"));
}

TEST(OthersSparedTest, WhoReplacesItOrIsLostDoesNotSpareIt) {
  SoundEvidence sound = InTheWay(false, kRefusal);
  FaultRecord taken = sound.Phase("values").ranks[0].faults[0];
  taken.absent = true;
  sound.Phase("values").ranks[0].faults.push_back(taken);
  sound.Phase("values").ranks[2].exit = "signal 11";
  EXPECT_THAT(Kinds(sound), UnorderedElementsAre("replaced", "lost"));
}

TEST(OthersSparedTest, WhereAnotherFaultMayHaveComeFirstNothingIsSaid) {
  SoundEvidence sound = InTheWay(false, "rank 1 was killed");
  sound.Phase("values").ranks[1].faults = {
      {"rank/kill", "1@built", "at stage built", "end-the-run"}};
  EXPECT_EQ(JudgeOne(sound.evidence, kOthersSpared).judgement.verdict(), Verdict::kSkip);
  EXPECT_EQ(JudgeOne(SoundEvidence().evidence, kOthersSpared).judgement.verdict(), Verdict::kSkip);
}

}  // namespace
}  // namespace shardproof::testing
