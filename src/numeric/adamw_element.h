// One step of AdamW on one element: the one source for every processor that runs it. Each operation
// is correctly rounded by IEEE 754 and their order is fixed, so the bits do not depend on who
// computes: nothing here may be contracted, reordered or approximated (-ffp-contract=off, no fast
// math; nvcc -fmad=false -prec-sqrt=true -prec-div=true).
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define SP_ANY_PROCESSOR __host__ __device__ __forceinline__
#else
#define SP_ANY_PROCESSOR __attribute__((always_inline)) inline
#endif

namespace shardproof {

/// What all elements of a parameter group share in one step; computed once, on the host.
struct AdamWScalars {
  float gradient_scale = 1;  ///< of clipping
  float decay = 1;           ///< 1 - lr * weight_decay
  float beta1_rest = 0;      ///< 1 - beta1
  float beta2 = 0;
  float beta2_rest = 0;         ///< 1 - beta2
  float second_root_scale = 1;  ///< 1 / sqrt(1 - beta2^step)
  float epsilon = 0;
  float step_size = 0;  ///< lr / (1 - beta1^step)
};

/// \source Loshchilov and Hutter, Decoupled Weight Decay Regularization, algorithm 2; the order of
///         operations is ours.
SP_ANY_PROCESSOR void AdamWElement(const AdamWScalars& s, float gradient, float& parameter,
                                   float& first, float& second) {
  const float g = gradient * s.gradient_scale;
  first = __builtin_fmaf(s.beta1_rest, g - first, first);
  second = __builtin_fmaf(s.beta2_rest * g, g, s.beta2 * second);
  const float divisor = __builtin_fmaf(__builtin_sqrtf(second), s.second_root_scale, s.epsilon);
  parameter = __builtin_fmaf(-s.step_size, first / divisor, parameter * s.decay);
}

/// bfloat16 is the upper half of a float.
SP_ANY_PROCESSOR float FromBf16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

/// To nearest, ties to even; a NaN stays one, quiet.
SP_ANY_PROCESSOR uint16_t ToBf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

}  // namespace shardproof
