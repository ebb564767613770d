#include "src/optim/reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardproof {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SamplesOf, RanksOfDataParallelismTakeTurns) {
  const Mesh mesh{{{"dp_replicate", 2}, {"tp", 2}, {"dp_shard", 2}}};
  const Batch batch{.step = 1, .samples = {10, 11, 12, 13, 14}};
  EXPECT_THAT(SamplesOf(batch, mesh, 0), ElementsAre(10, 14));
  EXPECT_THAT(SamplesOf(batch, mesh, 2), ElementsAre(10, 14)) << "at another coordinate of tp";
  EXPECT_THAT(SamplesOf(batch, mesh, 1), ElementsAre(11));
  EXPECT_THAT(SamplesOf(batch, mesh, 4), ElementsAre(12));
  EXPECT_THAT(SamplesOf(batch, mesh, 7), ElementsAre(13));
  EXPECT_THAT(SamplesOf({.step = 1, .samples = {10}}, mesh, 7), IsEmpty());
}

TEST(RanksAlong, DifferInOneCoordinate) {
  const Mesh mesh{{{"dp_replicate", 2}, {"tp", 2}, {"dp_shard", 2}}};
  EXPECT_THAT(RanksAlong(mesh, "dp_shard", 2), ElementsAre(2, 3));
  EXPECT_THAT(RanksAlong(mesh, "dp_replicate", 3), ElementsAre(3, 7));
  EXPECT_THAT(RanksAlong(mesh, "ep", 5), ElementsAre(5));
}

}  // namespace
}  // namespace shardproof
