// What a job does to its model after it was built: it freezes parts of it, and adds to it.
#include <gtest/gtest.h>

#include "properties/training_evidence.h"

namespace shardproof::testing {
namespace {

TEST(DescriptorsKeptTest, WhatThePlainPathFreezesAJobMayFreezeAfterItWasBuilt) {
  const auto verdict_of = [](bool is_frozen_by_plain, bool was_frozen) {
    SoundEvidence sound;
    sound.evidence.test_case.subject = "mine";
    sound.evidence.oracle.declared.at("w").requires_grad = !is_frozen_by_plain;
    for (const PhaseEvidence& phase : sound.evidence.phases) {
      for (const RankEvidence& rank : phase.ranks) {
        for (const StageRecord& stage : rank.stages) {
          if (!stage.tensors.contains("w")) continue;
          const bool is_built = stage.Key() == "built";
          sound.Descriptor(phase.name(), rank.rank, stage.Key(), "w").requires_grad =
              was_frozen != is_built;
        }
      }
    }
    return JudgeOne(sound.evidence, "loading.descriptors_kept").judgement.verdict();
  };
  EXPECT_EQ(verdict_of(true, false), Verdict::kPass);
  EXPECT_EQ(verdict_of(false, false), Verdict::kFail);
  EXPECT_EQ(verdict_of(false, true), Verdict::kFail) << "thawed";
}

TEST(KeysMatchTest, WhatASubjectAddsNoCheckpointNeedHave) {
  SoundEvidence sound;
  sound.evidence.oracle.missing_allowed.clear();
  const auto judge = [&] { return JudgeOne(sound.evidence, "loading.keys_match"); };
  EXPECT_EQ(judge().judgement.verdict(), Verdict::kFail);
  for (const char* phase : {"values", "plain"}) {
    for (RankEvidence& rank : sound.Phase(phase).ranks) {
      sound.Descriptor(phase, rank.rank, "ready", "lost").also = true;
    }
  }
  EXPECT_EQ(judge().judgement.verdict(), Verdict::kPass) << "and it may be reported";
  for (const char* phase : {"values", "plain"}) {
    for (RankEvidence& rank : sound.Phase(phase).ranks) rank.keys = KeyReport{};
  }
  EXPECT_EQ(judge().judgement.verdict(), Verdict::kPass) << "or not";
}

}  // namespace
}  // namespace shardproof::testing
