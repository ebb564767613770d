// Draws of which a case is made, in the order of the calls. draw.cc is the one file that knows
// rapidcheck.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "verify/case/case.h"

namespace shardproof::draw {

/// What `make` makes of the draws of number `index` of the stream that `seed` begins.
Case CaseOf(const std::function<Case()>& make, uint64_t seed, uint64_t index);

// What follows is called only within `make`.

/// From low to high, both possible.
int64_t Between(int64_t low, int64_t high);

/// True in `percent` of a hundred.
bool Chance(int percent);

template <typename T>
T OneOf(const std::vector<T>& choices) {
  return choices[static_cast<size_t>(Between(0, static_cast<int64_t>(choices.size()) - 1))];
}

}  // namespace shardproof::draw
