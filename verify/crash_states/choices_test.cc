#include "verify/crash_states/choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardproof::crash {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

std::vector<Picks> Made(const Choices& choices, int64_t all_max, uint64_t seed = 1,
                        int64_t some_max = INT64_MAX) {
  std::vector<Picks> made;
  const Status visited = VisitChoices(choices, {all_max, some_max}, seed, [&](const Picks& picks) {
    made.push_back(picks);
    return Ok();
  });
  EXPECT_TRUE(visited.ok());
  return made;
}

TEST(Choices, AreAllMadeWhereThereAreFew) {
  EXPECT_THAT(Made({{2, 3}, {}}, 6), UnorderedElementsAre(Picks{0, 0}, Picks{0, 1}, Picks{0, 2},
                                                          Picks{1, 0}, Picks{1, 1}, Picks{1, 2}));
  EXPECT_THAT(Made({{}, {}}, 1), ElementsAre(Picks{}));
}

TEST(Choices, OfManyNoneAllEachAloneAndTheNamedOnesAreMade) {
  EXPECT_THAT(Made({{3, 1, 2}, {{2, 0, 1}}}, 5),
              ElementsAre(Picks{0, 0, 0}, Picks{2, 0, 1}, Picks{1, 0, 0}, Picks{2, 0, 0},
                          Picks{0, 0, 1}, Picks{0, 0, 1}, Picks{2, 0, 0}, Picks{2, 0, 1}));
}

TEST(Choices, DrawnOnesFollowFromTheSeed) {
  const Choices choices{std::vector<int64_t>(20, 3), {}};
  const std::vector<Picks> made = Made(choices, 200);
  EXPECT_EQ(made.size(), 200u);
  EXPECT_EQ(made, Made(choices, 200));
  EXPECT_NE(made, Made(choices, 200, 2));
  for (const Picks& picks : made) {
    for (const int64_t pick : picks) EXPECT_TRUE(pick >= 0 && pick < 3);
  }
}

TEST(Choices, OfTooManySomeAreMadeEvenly) {
  const Choices choices{std::vector<int64_t>(1000, 2), {}};
  const std::vector<Picks> made = Made(choices, 64, 1, 50);
  EXPECT_NEAR(static_cast<double>(made.size()), 50, 3);
  EXPECT_EQ(made[0], Picks(1000, 0));
  EXPECT_EQ(made[1], Picks(1000, 1));
  EXPECT_EQ(made, Made(choices, 64, 1, 50));
  EXPECT_EQ(Made(choices, 64).size(), 2002u);
}

TEST(Choices, EndWithTheFirstError) {
  int64_t count = 0;
  const Status visited = VisitChoices({{2, 2}, {}}, {4}, 1, [&](const Picks&) -> Status {
    if (++count == 2) return Failed("enough");
    return Ok();
  });
  EXPECT_FALSE(visited.ok());
  EXPECT_EQ(count, 2);
}

}  // namespace
}  // namespace shardproof::crash
