// The arithmetic of made-up gradients (src/optim/gradient.h).
#pragma once

#include <cstdint>

namespace shardproof {

/// Gradients of `count` elements that follow each other in the global row-major order.
/// \param base   what the name and the step make of it.
/// \param index  of the first.
void MakeGradients(uint64_t base, uint64_t index, uint64_t count, const float* values,
                   float* gradients);

}  // namespace shardproof
