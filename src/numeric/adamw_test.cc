#include "src/numeric/adamw.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace shardproof {
namespace {

constexpr AdamWSettings kSettings{.learning_rate = 1e-2, .weight_decay = 0.1};

std::vector<float> Draw(size_t count, uint64_t seed) {
  std::mt19937_64 draw(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(draw);
  return values;
}

/// A parameter with its state, which owns its memory.
struct Trained {
  std::vector<float> parameter, first, second;

  explicit Trained(size_t count) : parameter(Draw(count, 1)), first(count), second(count) {}

  void Step(int64_t step, const std::vector<float>& gradient, float scale = 1,
            size_t cut = SIZE_MAX) {
    const AdamWScalars scalars = ScalarsOf(kSettings, step, scale);
    for (size_t begin = 0; begin < parameter.size(); begin += cut) {
      const size_t count = std::min(cut, parameter.size() - begin);
      StepAdamW(scalars, {.parameter = {parameter.data() + begin},
                          .gradient = gradient.data() + begin,
                          .first = {first.data() + begin},
                          .second = {second.data() + begin},
                          .count = count});
      if (cut > parameter.size()) break;
    }
  }
};

TEST(AdamW, IsTheTextbooksToWithinRounding) {
  const size_t count = 1000;
  Trained trained(count);
  std::vector<double> p(trained.parameter.begin(), trained.parameter.end()), m(count), v(count);
  for (int64_t step = 1; step <= 20; ++step) {
    const std::vector<float> gradient = Draw(count, 100 + static_cast<uint64_t>(step));
    trained.Step(step, gradient);
    for (size_t i = 0; i < count; ++i) {
      m[i] = kSettings.beta1 * m[i] + (1 - kSettings.beta1) * gradient[i];
      v[i] = kSettings.beta2 * v[i] + (1 - kSettings.beta2) * gradient[i] * gradient[i];
      const double mhat = m[i] / (1 - std::pow(kSettings.beta1, static_cast<double>(step)));
      const double vhat = v[i] / (1 - std::pow(kSettings.beta2, static_cast<double>(step)));
      p[i] -= kSettings.learning_rate *
              (mhat / (std::sqrt(vhat) + kSettings.epsilon) + kSettings.weight_decay * p[i]);
      // 20 steps of at most ten roundings each, of numbers of about 1.
      ASSERT_NEAR(trained.parameter[i], p[i], 20 * 10 * std::ldexp(4.0, -24));
    }
  }
}

/// The order of operations written down again, in long hand.
TEST(AdamW, KeepsItsOrderOfOperations) {
  const size_t count = 4099;
  Trained trained(count);
  Trained expected(count);
  for (int64_t step = 1; step <= 3; ++step) {
    std::vector<float> gradient = Draw(count, static_cast<uint64_t>(step));
    gradient[0] = 0;
    gradient[1] = std::numeric_limits<float>::denorm_min();
    gradient[2] = 1e30f;
    const AdamWScalars s = ScalarsOf(kSettings, step, 0.25f);
    for (size_t i = 0; i < count; ++i) {
      volatile float g = gradient[i] * 0.25f;
      volatile float difference = g - expected.first[i];
      expected.first[i] = std::fma(s.beta1_rest, static_cast<float>(difference), expected.first[i]);
      volatile float fresh = s.beta2_rest * g;
      volatile float kept = s.beta2 * expected.second[i];
      expected.second[i] =
          std::fma(static_cast<float>(fresh), static_cast<float>(g), static_cast<float>(kept));
      volatile float root = std::sqrt(expected.second[i]);
      volatile float divisor = std::fma(static_cast<float>(root), s.second_root_scale, s.epsilon);
      volatile float quotient = expected.first[i] / divisor;
      volatile float decayed = expected.parameter[i] * s.decay;
      expected.parameter[i] =
          std::fma(-s.step_size, static_cast<float>(quotient), static_cast<float>(decayed));
    }
    trained.Step(step, gradient, 0.25f);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(trained.parameter[i]),
                std::bit_cast<uint32_t>(expected.parameter[i]))
          << i;
      ASSERT_EQ(std::bit_cast<uint32_t>(trained.first[i]),
                std::bit_cast<uint32_t>(expected.first[i]))
          << i;
      ASSERT_EQ(std::bit_cast<uint32_t>(trained.second[i]),
                std::bit_cast<uint32_t>(expected.second[i]))
          << i;
    }
  }
}

TEST(AdamW, DoesNotDependOnHowATensorIsCut) {
  const size_t count = 10'007;
  for (const size_t cut : {1, 3, 8, 17, 1000}) {
    Trained whole(count), cut_up(count);
    for (int64_t step = 1; step <= 2; ++step) {
      const std::vector<float> gradient = Draw(count, static_cast<uint64_t>(step));
      whole.Step(step, gradient);
      cut_up.Step(step, gradient, 1, cut);
    }
    EXPECT_EQ(whole.parameter, cut_up.parameter);
    EXPECT_EQ(whole.second, cut_up.second);
  }
}

TEST(AdamW, RoundsToBf16AsItIsKept) {
  const size_t count = 515;
  const std::vector<float> gradient = Draw(count, 9);
  Trained wide(count);
  std::vector<uint16_t> parameter(count), first(count), second(count);
  for (size_t i = 0; i < count; ++i) {
    parameter[i] = ToBf16(wide.parameter[i]);
    wide.parameter[i] = FromBf16(parameter[i]);
  }
  wide.Step(1, gradient);
  const AdamWScalars scalars = ScalarsOf(kSettings, 1, 1);
  StepAdamW(scalars, {.parameter = {parameter.data(), true},
                      .gradient = gradient.data(),
                      .first = {first.data(), true},
                      .second = {second.data(), true},
                      .count = count});
  for (size_t i = 0; i < count; ++i) {
    EXPECT_EQ(parameter[i], ToBf16(wide.parameter[i]));
    EXPECT_EQ(first[i], ToBf16(wide.first[i]));
    EXPECT_EQ(second[i], ToBf16(wide.second[i]));
  }
}

TEST(Bf16, RoundsToNearestTiesToEven) {
  EXPECT_EQ(ToBf16(1.0f), 0x3f80);
  EXPECT_EQ(ToBf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // a tie
  EXPECT_EQ(ToBf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(ToBf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(ToBf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(ToBf16(-0.0f), 0x8000);
  EXPECT_EQ(ToBf16(std::bit_cast<float>(0x7f800001u)), 0x7fc0);  // not an infinity
  EXPECT_EQ(ToBf16(std::bit_cast<float>(0xffffffffu)), 0xffff);
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = FromBf16(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(ToBf16(value), bits);
  }
}

TEST(AdamW, ScalarsOfTheFirstStepUndoTheBias) {
  const AdamWScalars scalars =
      ScalarsOf({.learning_rate = 0.5, .beta1 = 0.5, .beta2 = 0.75, .weight_decay = 0.5}, 1, 1);
  EXPECT_EQ(scalars.step_size, 1.0f);
  EXPECT_EQ(scalars.second_root_scale, 2.0f);
  EXPECT_EQ(scalars.decay, 0.75f);
}

}  // namespace
}  // namespace shardproof
