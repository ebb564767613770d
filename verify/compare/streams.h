// Two tensors of one dtype and shape, read side by side.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "src/core/result.h"
#include "verify/maps/tensor_reader.h"

namespace shardproof::compare {

using maps::TensorReader;

struct Difference {
  uint64_t differing = 0;         ///< elements
  std::optional<uint64_t> first;  ///< row-major index
  std::string expected;           ///< the bytes of the first that differs
  std::string seen;
};

/// Counts elements whose bits differ. `nan_equal`: any NaN equals any other (a cast has no defined
/// payload). \error kBadInput if a file ends early.
Result<Difference> CountDifferences(TensorReader& a, TensorReader& b, bool nan_equal);

/// The same by so many threads, each of which opens both readers for itself and counts in a stretch
/// of the elements.
Result<Difference> CountDifferences(
    const std::function<std::pair<maps::Reader, maps::Reader>()>& open, uint64_t elements,
    uint64_t thread_count, bool nan_equal);

/// Whether all bits agree; stops at the first that does not. Dtypes of two widths do not.
Result<bool> AreEqual(TensorReader& a, TensorReader& b);

/// Whether b[j, i] == a[i, j] at many places of two matrices, `shape` being a's. False for a matrix
/// that is the same everywhere looked at. \pre both have as many elements as the shape.
Result<bool> LooksTransposed(TensorReader& a, TensorReader& b);

}  // namespace shardproof::compare
