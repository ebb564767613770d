#include "src/numeric/made_gradient.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "src/numeric/mix.h"

namespace shardproof {
namespace {

/// As src/optim/gradient.h says it, one element at a time.
float Expected(uint64_t base, uint64_t index, float value) {
  const auto u = static_cast<float>(
      (static_cast<double>(Mix(base + index) >> 40) - double{1 << 23}) * 0x1p-23);
  const float v = std::isnan(value) ? 0 : std::clamp(value, -1.0f, 1.0f);
  return std::fma(v, 0x1p-3f, u * 0x1p-4f);
}

std::vector<float> Values(uint64_t count) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> odd = {0.0f,       -0.0f,       1.0f,      -1.0f,
                                  1.0000001f, -1.0000001f, kInfinity, -kInfinity,
                                  1e-45f,     -1e-38f,     3e38f,     std::nanf("")};
  std::vector<float> values(count);
  for (uint64_t i = 0; i < count; ++i) {
    values[i] = i % 3 == 0 ? odd[i / 3 % odd.size()]
                           : static_cast<float>(static_cast<int32_t>(Mix(i))) * 0x1p-30f;
  }
  return values;
}

// Vectors and what is left over of them: bit for bit as one at a time, wherever a stretch begins.
TEST(MadeGradients, AreThoseOfTheDefinition) {
  for (const uint64_t count : {uint64_t{1}, uint64_t{7}, uint64_t{33}, uint64_t{1000}}) {
    for (const uint64_t index : {uint64_t{0}, uint64_t{5}, (uint64_t{1} << 40) + 3}) {
      const std::vector<float> values = Values(count);
      std::vector<float> made(count), expected(count);
      MakeGradients(0x9e3779b9, index, count, values.data(), made.data());
      for (uint64_t i = 0; i < count; ++i) expected[i] = Expected(0x9e3779b9, index + i, values[i]);
      EXPECT_EQ(std::memcmp(made.data(), expected.data(), count * sizeof(float)), 0)
          << count << " from " << index;
    }
  }
}

}  // namespace
}  // namespace shardproof
