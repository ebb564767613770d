// Initial values as a pure function of (seed, name, index): any rank computes any element of any
// shard alone, and all ranks agree without a collective.
//
// With mix = the SplitMix64 finaliser (src/digest/SPECIFICATION.md states it) and fnv1a64 the
// 64-bit FNV-1a hash of the name's bytes:
//   u(i) = mix(mix(seed) ^ fnv1a64(name)) + i, finalised once more: mix(that)
//   "uniform", float dtypes:  x = float(int32(u(i) >> 40) - 2^23) * float(scale * 2^-23), computed
//   in
//                             F32 with one rounding, then rounded to the dtype (nearest, ties to
//                             even)
//   "uniform", integer dtypes: (u(i) >> 40) mod 100;  BOOL: (u(i) >> 40) mod 2
//   "ones" and "zeros": 1 and 0 of the dtype.
//   C64: the real part as F32, the imaginary one 0.  F8_E8M0: the exponents it is made of, as U8.
// i is the element's index in the global row-major order. F64 holds the F32 value.
// scale is initializer_range * sqrt(3) for a Hugging Face model and 0.02 * sqrt(3) for a synthetic
// one. In a Hugging Face model the weight of a norm is "ones", so are the scales of quantised
// weights; every bias (an expert_bias too) is "zeros", all else "uniform".
#pragma once

#include <cstdint>

namespace shardproof {

struct Slot;

/// Writes the initial value of every element that `slot.value` holds (its whole tensor or its
/// shard, as slot.shard says) and marks it defined. `slot.value` must not be meta.
void FillInitialValue(Slot& slot, uint64_t seed, double scale);

}  // namespace shardproof
