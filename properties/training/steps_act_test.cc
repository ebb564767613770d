// training.steps_act on a body of evidence in which everything holds, and with one thing broken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "properties/training_evidence.h"
#include "verify/verdict/expectation.h"
#include "verify/verdict/image.h"

namespace shardproof::testing {
namespace {

using ::testing::HasSubstr;

TEST(StepsActTest, NamesAStepThatChangesNothing) {
  TrainingEvidence idle;
  for (RankEvidence& rank : idle.Phase("again").ranks) {
    idle.At("again", rank.rank, "stepped@2").tensors =
        idle.At("again", rank.rank, "stepped@1").tensors;
  }
  const Finding finding = OnlyFinding(idle.evidence, "training.steps_act");
  EXPECT_EQ(finding.facts.against.what, Against::What::kEarlier);
  EXPECT_FALSE(finding.facts.against.stage.empty());
  EXPECT_EQ(finding.kind, "idle");
  EXPECT_EQ(finding.stage, "stepped@2");
}

/// Evidence of a step with a record of what it left as it was.
class StepsEvidence : public TrainingEvidence {
 public:
  StepsRecord& Of(int64_t rank, const std::string& stage, const std::string& since) {
    auto& steps = At("train", rank, stage + ".optimizer").steps;
    if (!steps) steps = StepsRecord{1, since, 3, "", {}};
    return *steps;
  }
  void Still(const std::string& name, const std::string& why) {
    for (const RankEvidence& rank : Phase("train").ranks) {
      Of(rank.rank, "stepped@2", "stepped@1").still.push_back({name, why, "AdamW says so", 4, 7});
    }
  }
  void Undo(const std::string& tensor, const std::string& stage, const std::string& earlier) {
    for (const RankEvidence& rank : Phase("train").ranks) {
      At("train", rank.rank, stage).tensors.at(tensor) =
          At("train", rank.rank, earlier).tensors.at(tensor);
    }
  }
};

TEST(StepsActTest, NamesAParameterAndStateThatHadToChange) {
  const std::string id = "training.steps_act";
  StepsEvidence one;
  one.Undo("w", "stepped@2", "stepped@1");
  EXPECT_EQ(JudgeOne(one.evidence, id).judgement.verdict(), Verdict::kPass);
  one.Still("w", "due");
  Finding finding = OnlyFinding(one.evidence, id);
  EXPECT_EQ(finding.kind, "idle");
  EXPECT_EQ(finding.tensor, "w");
  EXPECT_EQ(finding.stage, "stepped@2");
  EXPECT_EQ(finding.ranks.size(), one.Phase("train").ranks.size());
  EXPECT_THAT(finding.message, HasSubstr("although AdamW says so at element 7, and"));

  StepsEvidence state;
  state.Still("w.step", "counter");
  EXPECT_EQ(OnlyFinding(state.evidence, id).kind, "stuck");
  EXPECT_EQ(OnlyFinding(state.evidence, id).tensor, "w.step");

  StepsEvidence unknown;
  unknown.Still("w", "undecided");
  const PropertyResult result = JudgeOne(unknown.evidence, id);
  EXPECT_EQ(result.judgement.verdict(), Verdict::kInconclusive);
  EXPECT_THAT(result.judgement.reason(), HasSubstr("whether it had to change is not known"));

  StepsEvidence unsure;
  unsure.Still("w", "due");
  unsure.Of(1, "stepped@2", "").unsure = "it may be the best of its values";
  EXPECT_EQ(JudgeOne(unsure.evidence, id).judgement.verdict(), Verdict::kInconclusive);
}

TEST(StepsActTest, AStepThatChangesNothingIsSoundWhereItSaysWhy) {
  const std::string id = "training.steps_act";
  const auto idle = [&](const std::function<void(StepsEvidence&)>& change) {
    StepsEvidence evidence;
    for (const RankEvidence& rank : evidence.Phase("train").ranks) {
      evidence.At("train", rank.rank, "stepped@2").tensors =
          evidence.At("train", rank.rank, "stepped@1").tensors;
    }
    change(evidence);
    return JudgeOne(evidence.evidence, id).judgement;
  };
  EXPECT_EQ(idle([](StepsEvidence&) {}).verdict(), Verdict::kFail);
  EXPECT_EQ(idle([](StepsEvidence& e) {
              for (const RankEvidence& rank : e.Phase("train").ranks) {
                e.At("train", rank.rank, "stepped@1.optimizer").optimizer->groups[0].options["lr"] =
                    "0.0";
              }
            }).verdict(),
            Verdict::kPass);
  EXPECT_EQ(idle([](StepsEvidence& e) {
              for (RankEvidence& rank : e.Phase("train").ranks) {
                std::erase_if(rank.stages,
                              [](const StageRecord& stage) { return stage.optimizer; });
              }
            }).verdict(),
            Verdict::kInconclusive);
  EXPECT_EQ(idle([](StepsEvidence& e) {
              for (const RankEvidence& rank : e.Phase("train").ranks) {
                e.Of(rank.rank, "stepped@2", "stepped@1").taken = 0;
              }
            }).verdict(),
            Verdict::kPass);
  const auto stale = [](StepsEvidence& e) {
    for (const RankEvidence& rank : e.Phase("train").ranks) {
      e.Of(rank.rank, "stepped@2", "stepped@1");
      auto& optimizer = *e.At("train", rank.rank, "stepped@2.optimizer").optimizer;
      std::erase(optimizer.groups[0].parameters, "w");
      optimizer.strangers.push_back({0, 0, "w", {3, 3}});
    }
  };
  const Judgement judgement = idle(stale);
  ASSERT_EQ(judgement.findings().size(), 1u);
  EXPECT_EQ(judgement.findings()[0].tensor, "");

  StepsEvidence partly;
  partly.Undo("w", "stepped@2", "stepped@1");
  stale(partly);
  EXPECT_EQ(OnlyFinding(partly.evidence, id).tensor, "w");
}

TEST(StepsActTest, AFrozenParameterMayFollowATrainableOne) {
  TrainingEvidence job;
  for (const char* phase : {"train", "again"}) {
    for (RankEvidence& rank : job.Phase(phase).ranks) {
      for (StageRecord& record : rank.stages) {
        if (record.of != "model") continue;
        TrainingEvidence::Descriptor(rank, record.tensors.at("w")).requires_grad = false;
      }
    }
  }
  const auto findings = [&job] {
    return JudgeOne(job.evidence, "training.steps_act").judgement.findings();
  };
  ASSERT_FALSE(findings().empty());
  EXPECT_EQ(findings()[0].facts.against.what, Against::What::kFrozen);
  for (const char* stage :
       {"stepped@1", "stepped@2", "stepped@3", "stepped@4", "resumed@3", "resumed@4"}) {
    job.evidence.oracle.twin_steps.push_back({.stage = std::string(stage), .averages = {"w"}});
  }
  EXPECT_TRUE(findings().empty());
}

TEST(StepsActTest, NamesValuesThatComeBackUnlessStepsLedInACircle) {
  const std::string id = "training.steps_act";
  const auto returned = [](StepsEvidence& e, const std::string& of) {
    for (const RankEvidence& rank : e.Phase("train").ranks) {
      e.At("train", rank.rank, "stepped@4" + of).tensors =
          e.At("train", rank.rank, "stepped@2" + of).tensors;
    }
  };
  StepsEvidence back;
  returned(back, "");
  const Finding finding = OnlyFinding(back.evidence, id);
  EXPECT_EQ(finding.kind, "returned");
  EXPECT_EQ(finding.stage, "stepped@4");
  EXPECT_EQ(finding.facts.against.stage.text(), "saved@2");

  StepsEvidence circle;
  returned(circle, "");
  returned(circle, ".optimizer");
  for (const RankEvidence& rank : circle.Phase("train").ranks) {
    circle.At("train", rank.rank, "saved@2.optimizer").tensors =
        circle.At("train", rank.rank, "stepped@2.optimizer").tensors;
  }
  EXPECT_EQ(JudgeOne(circle.evidence, id).judgement.verdict(), Verdict::kInconclusive);
}

}  // namespace
}  // namespace shardproof::testing
