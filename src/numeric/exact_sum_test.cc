#include "src/numeric/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace shardproof {
namespace {

std::vector<float> Draw(size_t count, uint64_t seed, bool any_exponent) {
  std::mt19937_64 draw(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    do {
      value = any_exponent ? std::bit_cast<float>(static_cast<uint32_t>(draw()))
                           : std::ldexp(static_cast<float>(draw() >> 40), -24) - 0.5f;
    } while (!std::isfinite(value));
  }
  return values;
}

ExactSquareSum SumOf(const std::vector<float>& values) {
  ExactSquareSum sum;
  sum.Add(values.data(), values.size());
  return sum;
}

TEST(ExactSquareSum, OfFewIsWhatDoublesGive) {
  EXPECT_EQ(ExactSquareSum().Value(), 0.0);
  EXPECT_EQ(SumOf({3, -4}).Value(), 25.0);
  EXPECT_EQ(SumOf({0, -0.0f}).Value(), 0.0);
  for (const float value : Draw(10'000, 1, true)) {
    const double square = static_cast<double>(value) * value;  // of 48 bits, so exact
    ASSERT_EQ(SumOf({value}).Value(), square) << value;
  }
  EXPECT_EQ(SumOf({std::numeric_limits<float>::denorm_min()}).Value(), std::ldexp(1.0, -298));
  EXPECT_EQ(SumOf({std::numeric_limits<float>::max(), std::numeric_limits<float>::max()}).Value(),
            2 * std::pow(static_cast<double>(std::numeric_limits<float>::max()), 2));
}

TEST(ExactSquareSum, RoundsOnceToTheNearest) {
  // The last bit of 2^60 is worth 256; what is behind it decides, however far behind it is.
  const float large = std::ldexp(1.0f, 30);
  EXPECT_EQ(SumOf({large}).Value(), std::ldexp(1.0, 60));
  EXPECT_EQ(SumOf({large, 8, 8}).Value(), std::ldexp(1.0, 60));  // 128 is a tie: to even, down
  EXPECT_EQ(SumOf({large, 8, 8, 1e-18f}).Value(), std::ldexp(1.0, 60) + 256);
  EXPECT_EQ(SumOf({large, 8, 8, 16}).Value(), std::ldexp(1.0, 60) + 512);  // 384: a tie, up
}

TEST(ExactSquareSum, DoesNotDependOnOrderOrCuts) {
  for (const bool any_exponent : {false, true}) {
    std::vector<float> values = Draw(200'003, 2, any_exponent);
    const double whole = SumOf(values).Value();
    double naive = 0;
    for (const float value : values) naive += static_cast<double>(value) * value;
    EXPECT_NEAR(whole / naive, 1, 1e-9);
    std::mt19937_64 draw(3);
    std::shuffle(values.begin(), values.end(), draw);
    EXPECT_EQ(SumOf(values).Value(), whole);
    for (const size_t ranks : {2, 3, 7, 1000}) {
      std::array<int64_t, ExactSquareSum::kDigits + 2> parts = {};
      ExactSquareSum added;
      const size_t share = values.size() / ranks + 1;
      for (size_t begin = 0; begin < values.size(); begin += share) {
        const auto end = std::min(begin + share, values.size());
        const ExactSquareSum own = SumOf({values.begin() + begin, values.begin() + end});
        for (size_t i = 0; i < parts.size(); ++i) parts[i] += own.Parts()[i];
        added.Add(own);
      }
      EXPECT_EQ(ExactSquareSum::FromParts(parts).Value(), whole);
      EXPECT_EQ(added.Value(), whole);
      EXPECT_EQ(added.Parts(), SumOf(values).Parts());
    }
  }
}

TEST(ExactSquareSum, TellsNanAndInf) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isnan(SumOf({1, nan, inf}).Value()));
  EXPECT_EQ(SumOf({1, -inf}).Value(), inf);
  EXPECT_EQ(ExactSquareSum::FromParts(SumOf({1, -inf}).Parts()).Value(), inf);
  ExactSquareSum sum = SumOf({1});
  sum.Add(SumOf({nan}));
  EXPECT_TRUE(std::isnan(ExactSquareSum::FromParts(sum.Parts()).Value()));
}

TEST(ClippingScale, IsAtMostOne) {
  EXPECT_EQ(ClippingScale(25, 10), 1.0f);
  EXPECT_EQ(ClippingScale(25, 1), static_cast<float>(1 / 5.000001));
  EXPECT_EQ(ClippingScale(0, 1), 1.0f);
  EXPECT_EQ(ClippingScale(std::numeric_limits<double>::infinity(), 1), 0.0f);
  EXPECT_TRUE(std::isnan(ClippingScale(std::numeric_limits<double>::quiet_NaN(), 1)));
}

}  // namespace
}  // namespace shardproof
