// What a subject shows of a job in part, by one thing that it leaves out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "properties/training_evidence.h"

namespace shardproof::testing {
namespace {

using ::testing::HasSubstr;

using LeavesOut = std::function<bool(const StageRecord&)>;

class ShownWholeTest : public ::testing::Test {
 protected:
  ShownWholeTest() {
    for (const char* name : {"values", "train"}) job_.Phase(name).saved_files = {"model"};
    for (RankEvidence& rank : job_.Phase("values").ranks) {
      StageRecord saved = *rank.Stage(Stage::kReady);
      saved.name = "saved";
      rank.stages.push_back(saved);
    }
  }

  void LeaveOut(const std::string& phase, const LeavesOut& leaves_out) {
    for (RankEvidence& rank : job_.Phase(phase).ranks) std::erase_if(rank.stages, leaves_out);
  }

  void LeaveOut(const std::string& phase, Stage stage) {
    LeaveOut(phase, [&](const StageRecord& record) { return record.name == stage; });
  }

  std::vector<Finding> Findings() {
    return JudgeOne(job_.evidence, "conformance.shown_whole").judgement.findings();
  }

  /// What they say, after how many there are, if that is not one.
  std::string Says() {
    const std::vector<Finding> findings = Findings();
    std::string said = findings.size() == 1 ? "" : std::to_string(findings.size());
    for (const Finding& finding : findings) said += finding.message;
    return said;
  }

  TrainingEvidence job_;
};

TEST_F(ShownWholeTest, WhatIsShownWholeIsSilent) { EXPECT_EQ(Says(), "0"); }

TEST_F(ShownWholeTest, AModelWasReadyBeforeItIsSteppedOrSaved) {
  LeaveOut("train", Stage::kReady);
  EXPECT_THAT(Says(), HasSubstr("`ready` of phase train"));
  EXPECT_THAT(Says(), HasSubstr("although `stepped` was observed"));
}

TEST_F(ShownWholeTest, WhatIsNotGoneOnWithNeedNotBeShown) {
  LeaveOut("again", [](const StageRecord&) { return true; });
  LeaveOut("values", Stage::kReady);
  LeaveOut("values", Stage::kSaved);
  LeaveOut("values", Stage::kRestored);
  EXPECT_EQ(Says(), "0") << "others say that nothing was observed";
}

TEST_F(ShownWholeTest, ASaveIsShownWhereWhatCameBackIs) {
  LeaveOut("train", Stage::kSaved);
  EXPECT_THAT(Says(), HasSubstr("what saving did to the model"));
}

TEST_F(ShownWholeTest, WhatCameBackIsShownWhereStepsFromItAre) {
  LeaveOut("train", Stage::kRestored);
  EXPECT_THAT(Says(), HasSubstr("steps from it were observed (`resumed`)"));
}

TEST_F(ShownWholeTest, WhatCameBackIsShownInEachPhaseOrInNone) {
  LeaveOut("values", Stage::kRestored);
  EXPECT_THAT(Says(), HasSubstr("in another phase the subject observed `restored`"));
  for (const PhaseEvidence& phase : job_.evidence.phases) {
    LeaveOut(phase.name(), Stage::kRestored);
    LeaveOut(phase.name(), Stage::kResumed);
  }
  EXPECT_EQ(Says(), "0");
}

TEST_F(ShownWholeTest, WhatSavesInOnePhaseSavesInEach) {
  LeaveOut("values", Stage::kSaved);
  LeaveOut("values", Stage::kRestored);
  job_.Phase("values").saved_files.clear();
  EXPECT_THAT(Says(), HasSubstr("no checkpoint was written, and phase train left one"));
  job_.Phase("train").saved_files.clear();
  EXPECT_EQ(Says(), "0");
}

TEST_F(ShownWholeTest, AllStepsAreShown) {
  LeaveOut("again", [](const StageRecord& record) { return record.step == 4; });
  EXPECT_THAT(Says(), HasSubstr("the case takes 4 steps, and the last that was observed is 3"));
  LeaveOut("again", Stage::kStepped);
  EXPECT_THAT(Says(), HasSubstr("the case takes 4 steps, and none was observed"));
}

TEST_F(ShownWholeTest, AJobThatWasRestoredGoesOn) {
  LeaveOut("train", Stage::kResumed);
  EXPECT_THAT(Says(), HasSubstr("`resumed` of phase train"));
}

TEST_F(ShownWholeTest, ASaveSaysAfterWhichStepItIs) {
  for (RankEvidence& rank : job_.Phase("train").ranks) {
    for (StageRecord& record : rank.stages) {
      if (record.name == Stage::kSaved) record.step = 0;
    }
  }
  EXPECT_THAT(Says(), HasSubstr("rank 0 observed it without step="));
}

TEST_F(ShownWholeTest, AnOptimizerIsShownWhereItsStateCountsOrNowhere) {
  const auto is_optimizer = [](const StageRecord& record) { return record.of == "optimizer"; };
  for (const Stage stage : {Stage::kReady, Stage::kSaved, Stage::kRestored}) {
    TrainingEvidence whole = job_;
    LeaveOut("train",
             [&](const auto& record) { return is_optimizer(record) && record.name == stage; });
    EXPECT_THAT(Says(), HasSubstr("observed without optimizer=")) << NameOf(stage);
    job_ = whole;
  }
  LeaveOut("train", is_optimizer);
  EXPECT_EQ(Says(), "0") << "others say that it steps and is not observed";
}

TEST_F(ShownWholeTest, AnOptimizerIsShownAtEachStepThatItTakes) {
  LeaveOut("train",
           [](const StageRecord& record) { return record.Key() == "resumed@3.optimizer"; });
  EXPECT_EQ(Says(), "0") << "it may have stepped before";
  job_.At("train", 1, "resumed@3").steps = StepsRecord{.taken = 1, .unsure = "AdamW"};
  EXPECT_THAT(Says(), HasSubstr("elsewhere, although AdamW stepped"));
}

TEST_F(ShownWholeTest, OfWhatIsCutShortNothingIsSaid) {
  LeaveOut("train", Stage::kReady);
  job_.Phase("train").ranks[1].closed = false;
  EXPECT_EQ(Says(), "0");
}

}  // namespace
}  // namespace shardproof::testing
