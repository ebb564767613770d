#include "src/checkpoint/steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "src/checkpoint/fixture_steps.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(StepNameTest, IsReadBack) {
  EXPECT_EQ(StepName(2), "step-00000002");
  EXPECT_EQ(StepName(1234567890), "step-1234567890");
  for (const int64_t step :
       {int64_t{0}, int64_t{2}, int64_t{99999999}, int64_t{100000000}, INT64_MAX}) {
    EXPECT_EQ(StepOfName(StepName(step)), step);
  }
  for (const char* name :
       {"", "step-", "step-2", "step-0000002", "step-000000002", "step--0000002", "step-+0000002",
        "step-0000000x", "step-00000002.saving", "step-00000002/", "../step-00000002",
        "step-9223372036854775808", "step-99999999999999999999999", "Step-00000002"}) {
    EXPECT_EQ(StepOfName(name), std::nullopt) << name;
  }
}

TEST_F(StepsTest, KeepsTheNewestAndRestoresTheLatest) {
  SaveAt({1, 2, 4});
  EXPECT_THAT(Names(), ElementsAre("latest", "step-00000002", "step-00000004"));
  EXPECT_EQ(Restored(), 4);
  EXPECT_THAT(quiet_->notices, IsEmpty());
  // A job may load from the root as well, and from one of its steps.
  for (const auto& [path, step] : {std::pair{root_, 4}, {root_ + "/step-00000002", 2}}) {
    Job job = job_;
    job.from_scratch = false;
    job.checkpoint = path;
    for (const Status& end : OnRanks([&](World& world) -> Status {
           SP_ASSIGN(const Model model, Load(job, ReferenceStages(job.strategy), world));
           EXPECT_EQ(model.step, step);
           return Ok();
         })) {
      EXPECT_TRUE(end.ok()) << end.error().message;
    }
  }
}

TEST_F(StepsTest, WhatIsNoStepIsLeftAlone) {
  job_.training.keep = 1;
  SaveAt({1});
  for (const char* name :
       {"step-2", "step-9223372036854775808", "steps", "best", "notes.txt.saving"}) {
    fs::create_directory(root_ + "/" + name);
  }
  Write("step-00000000x", "a file");
  for (const char* name : {"step-00000001.saving", "step-00000006.saving"}) {
    Write(name, "of a save that was killed");
  }
  fs::create_directory(root_ + "/step-00000007");  // of another job: later than what this one saves
  SaveAt({1, 2, 3});
  EXPECT_THAT(Names(),
              ElementsAre("best", "latest", "notes.txt.saving", "step-00000000x", "step-00000003",
                          "step-00000007", "step-2", "step-9223372036854775808", "steps"));
  EXPECT_EQ(Restored(), 3);
}

TEST_F(StepsTest, WhatIsNotWholeDoesNotCount) {
  SaveAt({1, 2, 3});
  fs::remove(root_ + "/step-00000003/__0_0.distcp");
  fs::create_directory(root_ + "/step-00000004");
  job_.training.keep = 2;
  const auto at = [&](int64_t step) {
    World world{.files = MakePosixFileSystem()};
    const Status moved = MoveLatest(root_, StepName(step), world);
    EXPECT_TRUE(moved.ok());
    return RetainSteps(root_, 2, world);
  };
  ASSERT_TRUE(at(4).ok());  // 4 and 3 are not whole, so 2 is the only good one
  EXPECT_THAT(Names(), ElementsAre("latest", "step-00000002", "step-00000003", "step-00000004"));
  EXPECT_EQ(Restored(), 2);
  ASSERT_EQ(quiet_->notices.size(), 1u);
  EXPECT_THAT(quiet_->notices[0], AllOf(HasSubstr("loaded step-00000002"),
                                        HasSubstr("step-00000004"), HasSubstr("__0_0.distcp")));
}

TEST_F(StepsTest, ADamagedStepIsSavedAgain) {
  SaveAt({1, 2});
  fs::remove(root_ + "/step-00000002/.metadata");
  EXPECT_EQ(Restored(), 1);
  SaveAt({2});
  EXPECT_EQ(Restored(), 2);
  EXPECT_THAT(quiet_->notices, IsEmpty());
  Write("step-00000002/thesis.tex", "years of work");
  const auto ends = OnRanks([&](World& world) -> Status {
    const Stages stages = ReferenceStages(job_.strategy);
    SP_ASSIGN(Model model, Load(job_, stages, world));
    SP_TRY(Train(model, 2, Stage::kStepped, job_, stages, world));
    return Save(model, job_, stages, world);
  });
  ASSERT_FALSE(ends[1].ok());
  EXPECT_THAT(ends[1].error().message, HasSubstr("holds 'thesis.tex'"));
}

TEST_F(StepsTest, RetentionWithoutARightLatestRemovesNothing) {
  SaveAt({1, 2});
  World world{.files = MakePosixFileSystem()};
  for (const char* text : {"", "step-2", "../step-00000001"}) {
    Write("latest", text);
    EXPECT_FALSE(RetainSteps(root_, 1, world).ok());
    EXPECT_EQ(Names().size(), 3u);
  }
}

TEST_F(StepsTest, ALatestOfOthersMakesNoRoot) {
  const auto files = MakePosixFileSystem();
  fs::create_directories(root_ + "/global_step500");
  Write("latest", "global_step500");
  EXPECT_FALSE(IsStepRoot(*files, root_));
  EXPECT_FALSE(CheckStepRoot(*files, root_).ok());
  fs::remove(root_ + "/latest");
  fs::create_directories(root_ + "/latest");
  const Status refused = CheckStepRoot(*files, root_);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("/latest: expected a file that names a step"));
  fs::remove(root_ + "/latest");
  Write("latest", "step-00000002\n");
  EXPECT_TRUE(IsStepRoot(*files, root_));
  Write("model.safetensors", "");  // a checkpoint, whatever else is there
  EXPECT_FALSE(IsStepRoot(*files, root_));
}

TEST_F(StepsTest, ARootThatIsSomethingElseIsRefused) {
  fs::create_directory(root_);
  Write("thesis.tex", "years of work");
  for (const Status& end : OnRanks([&](World& world) -> Status {
         const Stages stages = ReferenceStages(job_.strategy);
         SP_ASSIGN(Model model, Load(job_, stages, world));
         SP_TRY(Train(model, 1, Stage::kStepped, job_, stages, world));
         return Save(model, job_, stages, world);
       })) {
    ASSERT_FALSE(end.ok());
    EXPECT_EQ(end.error().code, ErrorCode::kBadInput);
    EXPECT_THAT(end.error().message, HasSubstr("holds neither latest nor directories of steps"));
  }
  EXPECT_THAT(Names(), ElementsAre("thesis.tex"));
}

}  // namespace
}  // namespace shardproof
