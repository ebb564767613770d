#include "verify/case/phase.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardproof {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PhaseTest, ANameIsItsPhaseAndNoOther) {
  for (const PhaseFacts& facts : kPhases) {
    const Result<Phase> parsed = ParsePhase(facts.name);
    ASSERT_TRUE(parsed.ok()) << facts.name;
    EXPECT_EQ(parsed.value(), facts.phase);
    EXPECT_STREQ(NameOf(facts.phase), facts.name);
  }
  for (const char* none : {"", "Values", "values ", "../values", "load"}) {
    const Result<Phase> refused = ParsePhase(none);
    ASSERT_FALSE(refused.ok()) << none;
    EXPECT_EQ(refused.error().code, ErrorCode::kBadInput);
    EXPECT_THAT(refused.error().message, HasSubstr("expected one of values, plain, resume"));
  }
}

TEST(PhaseTest, TheTableAgreesWithItself) {
  for (const PhaseFacts& facts : kPhases) {
    SCOPED_TRACE(facts.name);
    EXPECT_THAT(facts.what, HasSubstr("."));
    if (facts.resumes) {
      EXPECT_TRUE(FactsOf(*facts.resumes).saves);
      EXPECT_EQ(FactsOf(*facts.resumes).trains, facts.trains);
      EXPECT_TRUE(facts.on_resume_mesh);
    }
    EXPECT_TRUE(facts.saves || !facts.may_be_struck);
    EXPECT_TRUE(facts.repeats_struck || !facts.follows_struck);
    EXPECT_FALSE(facts.repeats_struck && (facts.saves || facts.trains || facts.may_be_struck));
  }
}

TEST(PhaseTest, ThoseThatLoadAndThoseThatTrain) {
  EXPECT_THAT(LoadingPhases(),
              ElementsAre(Phase::kValues, Phase::kPlain, Phase::kResume, Phase::kOneReads));
  EXPECT_THAT(TrainingPhases(), ElementsAre(Phase::kTrain, Phase::kAgain, Phase::kTrainOnDevice,
                                            Phase::kTrainResume));
  EXPECT_EQ(EveryPhase().size(), kPhases.size());
}

TEST(PhaseTest, WhatItStartsFrom) {
  EXPECT_EQ(StartInWords(FactsOf(Phase::kValues)), "the source");
  EXPECT_EQ(StartInWords(FactsOf(Phase::kTrainResume)), "what phase train saved");
  EXPECT_EQ(StartInWords(FactsOf(Phase::kAfter)), "what the struck phase left");
}

}  // namespace
}  // namespace shardproof
