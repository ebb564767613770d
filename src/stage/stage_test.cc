#include "src/stage/stage.h"

#include <gtest/gtest.h>

namespace shardproof {
namespace {

TEST(StageTest, ANameIsItsStageAndNoOther) {
  for (const StageFacts& facts : kStages) {
    EXPECT_EQ(FindStage(facts.name), facts.stage);
    EXPECT_TRUE(std::string(facts.name) == facts.stage);
  }
  for (const char* none : {"", "Ready", "stepped@3", "my_stage"}) {
    EXPECT_EQ(FindStage(none), std::nullopt) << none;
  }
}

TEST(StageTest, EveryStepIsWholeAndMessagesListAll) {
  for (const StageFacts& facts : kStages) {
    EXPECT_TRUE(facts.is_whole || !facts.is_step) << facts.name;
  }
  EXPECT_EQ(ListStages(),
            "built, loaded, bound, sharded, materialized, ready, saved, restored, stepped, "
            "resumed");
}

}  // namespace
}  // namespace shardproof
