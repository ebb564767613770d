// Compiled with -ffp-contract=off -fno-math-errno -O3 (src/CMakeLists.txt): the first for the bits,
// the others for speed.
#include "src/numeric/adamw.h"

#include <cmath>

#include "src/numeric/vector_clones.h"

namespace shardproof {
namespace {

/// By squaring, in multiplications alone: std::pow may differ in its last bit from libm to libm.
double Power(double base, int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result *= base;
    base *= base;
  }
  return result;
}

struct F32 {
  using Stored = float;
  static float Load(const float& stored) { return stored; }
  static void Store(float value, float& stored) { stored = value; }
};

struct Bf16 {
  using Stored = uint16_t;
  static float Load(const uint16_t& stored) { return FromBf16(stored); }
  static void Store(float value, uint16_t& stored) { stored = ToBf16(value); }
};

template <typename Parameter, typename Moment>
__attribute__((always_inline)) inline void StepLoop(const AdamWScalars& given,
                                                    const AdamWElements& all) {
  const AdamWScalars scalars = given;  // a copy, which no store can change
  auto* __restrict parameter = static_cast<typename Parameter::Stored*>(all.parameter.data);
  const float* __restrict gradient = all.gradient;
  auto* __restrict first = static_cast<typename Moment::Stored*>(all.first.data);
  auto* __restrict second = static_cast<typename Moment::Stored*>(all.second.data);
  for (uint64_t i = 0; i < all.count; ++i) {
    float p = Parameter::Load(parameter[i]);
    float m = Moment::Load(first[i]);
    float v = Moment::Load(second[i]);
    AdamWElement(scalars, gradient[i], p, m, v);
    Parameter::Store(p, parameter[i]);
    Moment::Store(m, first[i]);
    Moment::Store(v, second[i]);
  }
}

SP_VECTOR_CLONES void StepF32(const AdamWScalars& s, const AdamWElements& e) {
  StepLoop<F32, F32>(s, e);
}
SP_VECTOR_CLONES void StepF32Bf16(const AdamWScalars& s, const AdamWElements& e) {
  StepLoop<F32, Bf16>(s, e);
}
SP_VECTOR_CLONES void StepBf16F32(const AdamWScalars& s, const AdamWElements& e) {
  StepLoop<Bf16, F32>(s, e);
}
SP_VECTOR_CLONES void StepBf16(const AdamWScalars& s, const AdamWElements& e) {
  StepLoop<Bf16, Bf16>(s, e);
}

}  // namespace

AdamWScalars ScalarsOf(const AdamWSettings& settings, int64_t step, float gradient_scale) {
  AdamWScalars scalars;
  scalars.gradient_scale = gradient_scale;
  scalars.decay = static_cast<float>(1 - settings.learning_rate * settings.weight_decay);
  scalars.beta1_rest = static_cast<float>(1 - settings.beta1);
  scalars.beta2 = static_cast<float>(settings.beta2);
  scalars.beta2_rest = static_cast<float>(1 - settings.beta2);
  scalars.second_root_scale = static_cast<float>(1 / std::sqrt(1 - Power(settings.beta2, step)));
  scalars.epsilon = static_cast<float>(settings.epsilon);
  scalars.step_size =
      static_cast<float>(settings.learning_rate / (1 - Power(settings.beta1, step)));
  return scalars;
}

void StepAdamW(const AdamWScalars& scalars, const AdamWElements& elements) {
  const bool bf16_moments = elements.first.is_bf16;
  if (elements.parameter.is_bf16) {
    bf16_moments ? StepBf16(scalars, elements) : StepBf16F32(scalars, elements);
  } else {
    bf16_moments ? StepF32Bf16(scalars, elements) : StepF32(scalars, elements);
  }
}

}  // namespace shardproof
