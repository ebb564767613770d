// What the plain twin adds to the evidence: properties with it, on the sound evidence of a subject.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "properties/training_evidence.h"
#include "verify/verdict/select.h"

namespace shardproof::testing {
namespace {

using ::testing::HasSubstr;

class TwinPropertyTest : public ::testing::Test {
 protected:
  TwinPropertyTest() {
    twin().made_by = "make()";
    twin().held = 3;
    for (const auto& [name, tensor] : sound_.evidence.oracle.source.tensors) {
      if (!sound_.evidence.oracle.declared.contains(name)) twin().keys.unexpected.push_back(name);
    }
  }

  TwinOracle& twin() {
    std::optional<TwinOracle>& twin = sound_.evidence.oracle.twin;
    return twin ? *twin : twin.emplace();
  }
  Judgement Judged(const std::string& id) { return JudgeOne(sound_.evidence, id).judgement; }
  OptimizerGroup& Group(int64_t rank) {
    return sound_.At("train", rank, "ready.optimizer").optimizer->groups.at(0);
  }

  TrainingEvidence sound_;
};

TEST_F(TwinPropertyTest, SoundEvidencePassesWithATwin) {
  EXPECT_EQ(Judged("loading.twin_equals_files").verdict(), Verdict::kPass);
  EXPECT_EQ(Judged("loading.twin_equals_files").comparisons(), 3u);
  EXPECT_EQ(Judged("loading.keys_match").verdict(), Verdict::kPass);
}

TEST_F(TwinPropertyTest, ADeviationIsOfTheInput) {
  twin().deviations = {{"w", "differs", "has another value"}};
  const Judgement judgement = Judged("loading.twin_equals_files");
  ASSERT_EQ(judgement.findings().size(), 1u);
  EXPECT_EQ(judgement.findings()[0].failure_class, "input");
  EXPECT_EQ(judgement.findings()[0].message, "w has another value (make())");
}

TEST_F(TwinPropertyTest, WhatIsUnheldIsInconclusiveAndATwinThatIsNoneASkip) {
  twin().unheld = {"w"};
  EXPECT_EQ(Judged("loading.twin_equals_files").verdict(), Verdict::kInconclusive);
  twin() = {.why_none = "no room"};
  EXPECT_EQ(Judged("loading.twin_equals_files").verdict(), Verdict::kSkip);
  EXPECT_THAT(Judged("loading.twin_equals_files").reason(), HasSubstr("no room"));
}

TEST_F(TwinPropertyTest, AKeyThatThePlainPathPassesOverIsNotUnexpected) {
  sound_.evidence.oracle.source.tensors["old"] = {.name = "old", .dtype = "F32", .shape = {1}};
  EXPECT_EQ(Judged("loading.keys_match").verdict(), Verdict::kPass);
  twin().keys.unexpected.push_back("old");
  const Judgement told = Judged("loading.keys_match");
  ASSERT_FALSE(told.findings().empty());
  EXPECT_THAT(told.findings()[0].message, HasSubstr("old"));
}

TEST_F(TwinPropertyTest, AttributesThatAreLostAreAFindingIfTheModelReadsThem) {
  for (RankEvidence& rank : sound_.Phase("values").ranks) {
    // All but what was built: the others are descriptors of shards.
    for (TensorDescriptor& descriptor : rank.descriptors) {
      const TensorOnRank built = FindTensor(rank, Stage::kBuilt, descriptor.name);
      if (built.descriptor != &descriptor) descriptor.attributes.clear();
    }
  }
  EXPECT_EQ(Judged("loading.descriptors_kept").verdict(), Verdict::kPass);
  twin().used_attributes = {{"no_weight_decay", "net.py:7"}};
  const Judgement lost = Judged("loading.descriptors_kept");
  ASSERT_FALSE(lost.findings().empty());
  EXPECT_EQ(lost.findings()[0].kind, "attribute no_weight_decay");
  EXPECT_THAT(lost.findings()[0].message, HasSubstr("net.py:7 reads it"));
}

TEST_F(TwinPropertyTest, GroupsAreThoseOfTheTwinsOptimizer) {
  EXPECT_EQ(Judged("training.groups_as_plain").verdict(), Verdict::kSkip);
  for (RankEvidence& rank : sound_.Phase("train").ranks) {
    Group(rank.rank) = {{{"lr", "0.1"}, {"betas", "(0.9, 0.95)"}}, {"w", "v"}};
  }
  // In another order, in two groups, and without an option that only the twin's has.
  twin().groups = {{{{"lr", "0.1"}, {"foreach", "None"}}, {"v"}}, {{{"lr", "0.1"}}, {"w"}}};
  EXPECT_EQ(Judged("training.groups_as_plain").verdict(), Verdict::kPass);
  Group(1).options["lr"] = "0.2";
  const Judgement other = Judged("training.groups_as_plain");
  ASSERT_EQ(other.findings().size(), 1u);
  EXPECT_EQ(other.findings()[0].kind, "option lr");
  EXPECT_EQ(other.findings()[0].ranks, std::vector<int64_t>{1});
  EXPECT_THAT(other.findings()[0].message,
              HasSubstr("lr is 0.2 for 2 parameters (v, w), and 0.1 in the plain twin's"));
  Group(1) = {{{"lr", "0.1"}}, {"w"}};
  EXPECT_EQ(Judged("training.groups_as_plain").findings().at(0).kind, "not-held");
}

}  // namespace
}  // namespace shardproof::testing
