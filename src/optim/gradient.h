// What stands in for backpropagation: gradients as a pure function of (name, step, index, value),
// so that any rank computes its own part of them alone, on any mesh, and a parameter that is wrong
// has a wrong gradient from its next step on.
//
// With mix and fnv1a64 as in src/model/initial_value.h, and i the element's index in the global
// row-major order:
//   u = float(int32(mix((mix(step) ^ fnv1a64(name)) + i) >> 40) - 2^23) * 2^-23, in [-1, 1)
//   v = value, cut to [-1, 1]; 0 of a NaN
//   g = fma(v, 2^-3, u * 2^-4), in F32: rounded once
#pragma once

#include <cstdint>
#include <string>

namespace shardproof {

struct Shard;

/// Gradients of the elements that make [begin, begin + count) of what `shard` holds, in local
/// row-major order. All arrays have `count` elements.
/// \param name  canonical FQN.
/// \param step  counts from 1.
void FillGradient(const std::string& name, const Shard& shard, int64_t step, uint64_t begin,
                  uint64_t count, const float* values, float* gradient);

}  // namespace shardproof
