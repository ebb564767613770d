// Arithmetic of owned runs: who owns an element, in closed form where runs are many.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "verify/evidence/evidence.h"

namespace shardproof {

/// A half-open stretch of elements (or bytes).
struct Stretch {
  uint64_t begin = 0;
  uint64_t end = 0;
  friend bool operator==(const Stretch&, const Stretch&) = default;
};

/// Whether any of the runs has an element in [begin, end).
bool Touches(const std::vector<OwnedRun>& runs, uint64_t begin, uint64_t end);

/// The stretches of the runs in ascending order, neighbours joined; overlapping ones stay apart.
/// \returns nullopt if there are more than `stretch_count_max`, or one does not fit in 64 bits.
std::optional<std::vector<Stretch>> Expand(const std::vector<OwnedRun>& runs,
                                           uint64_t stretch_count_max = 1u << 20);

/// The block of a row-major tensor that has those indices in each dim (ascending, none touching the
/// next), as stretches.
std::optional<std::vector<Stretch>> ExpandBox(const std::vector<int64_t>& shape,
                                              const std::vector<std::vector<Stretch>>& box,
                                              uint64_t stretch_count_max = 1u << 20);

/// The coverage sum of those runs, elements being `element_bytes` long.
Digest CoverageOf(const std::vector<OwnedRun>& runs, uint64_t element_bytes);

}  // namespace shardproof
