#include "verify/compare/number_pair.h"

#include <gtest/gtest.h>

#include <cmath>

namespace shardproof::compare {
namespace {

TEST(NumberPair, NothingIsWithinABoundThatIsNotFinite) {
  EXPECT_EQ(PartOfBound({1, 0.5}, {2, 0.5}), 1);
  EXPECT_EQ(PartOfBound({1, 0}, {2, 0}), HUGE_VAL);
  EXPECT_EQ(PartOfBound({1, 0}, {INFINITY, INFINITY}), HUGE_VAL);
  EXPECT_EQ(PartOfBound({1, 0}, {2, INFINITY}), HUGE_VAL);
  EXPECT_EQ(PartOfBound({1, 0}, {2, NAN}), HUGE_VAL);
  EXPECT_EQ(PartOfBound({-INFINITY, 1}, {INFINITY, 1}), HUGE_VAL);
  EXPECT_EQ(PartOfBound({1, 0}, {NAN, INFINITY}), HUGE_VAL);
  EXPECT_EQ(PartOfBound({INFINITY, 1}, {INFINITY, INFINITY}), 0);
  EXPECT_EQ(PartOfBound({NAN, 1}, {NAN, 1}), 0);
}

TEST(NumberPair, AnInfiniteOneIsTheSameAsItselfAlone) {
  EXPECT_TRUE(AreSame({1, 0}, {1 + 0x1p-20, 0}));
  EXPECT_FALSE(AreSame({1, 0}, {1.5, 0}));
  EXPECT_FALSE(AreSame({1, 0}, {INFINITY, 0}));
  EXPECT_FALSE(AreSame({-INFINITY, 0}, {INFINITY, 0}));
  EXPECT_TRUE(AreSame({INFINITY, 0}, {INFINITY, 0}));
}

}  // namespace
}  // namespace shardproof::compare
