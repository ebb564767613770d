// Two tensors of one dtype and shape, read side by side.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

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

/// The same of the elements from `begin` on and before `end`.
Result<Difference> CountDifferences(TensorReader& a, TensorReader& b, bool nan_equal,
                                    uint64_t begin, uint64_t end);

/// Whether all bits agree; stops at the first that does not. Dtypes of two widths do not.
Result<bool> AreEqual(TensorReader& a, TensorReader& b);

/// Whether b[j, i] == a[i, j] at many places of two matrices, `shape` being a's. False for a matrix
/// that is the same everywhere looked at. \pre both have as many elements as the shape.
Result<bool> LooksTransposed(TensorReader& a, TensorReader& b);

}  // namespace shardproof::compare
