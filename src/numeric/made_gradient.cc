// Compiled as adamw.cc is (src/CMakeLists.txt).
#include "src/numeric/made_gradient.h"

#include "src/numeric/mix.h"
#include "src/numeric/vector_clones.h"

namespace shardproof {
namespace {

/// Comparisons alone, so that a loop becomes vectors.
__attribute__((always_inline)) inline float Bounded(float value) {
  const float from_below = value < -1.0f ? -1.0f : value;
  const float bounded = from_below > 1.0f ? 1.0f : from_below;
  return value == value ? bounded : 0.0f;
}

}  // namespace

SP_VECTOR_CLONES void MakeGradients(uint64_t base, uint64_t index, uint64_t count,
                                    const float* __restrict values, float* __restrict gradients) {
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t bits = Mix(base + index + i) >> 40;
    const auto u = static_cast<float>(static_cast<int32_t>(bits) - (1 << 23)) * 0x1p-23f;
    gradients[i] = __builtin_fmaf(Bounded(values[i]), 0x1p-3f, u * 0x1p-4f);
  }
}

}  // namespace shardproof
