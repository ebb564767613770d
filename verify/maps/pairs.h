// Which box of a stored tensor of A is which box of one of B, as far as a map keeps values. Who has
// B's elements can then digest A's where they lie, without A's bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/maps/apply.h"

namespace shardproof::maps {

/// What is done to a tensor without changing its elements or their bytes.
struct Step {
  enum class Kind {
    kReshape,  ///< to the shape `numbers`, row-major
    kPermute,  ///< dim i is the one that was numbers[i]
    kBits,     ///< read as `dtype`
  };
  Kind kind;
  std::vector<int64_t> numbers = {};
  std::string dtype = {};
};

/// A box of a stored tensor, or one value over and over.
struct Box {
  const formats::StoredTensor* tensor = nullptr;  ///< null: `fill`
  std::vector<int64_t> offsets = {};
  std::vector<int64_t> sizes = {};
  std::string fill = {};  ///< the bytes of one element
};

/// B's box is A's after these steps.
struct Pair {
  Box a;
  Box b;
  std::vector<Step> steps;
  /// A's box is held against other elements of B, too: padding that repeats a row, or one tensor
  /// that B has under several names.
  bool again = false;
};

/// Two views that are equal, box by box.
/// \error kUnsupported: one of them computes, or a reshape cuts through what was joined.
/// \pre what the views were made of outlives the pairs.
Result<std::vector<Pair>> PairsOf(const Held& held);

}  // namespace shardproof::maps
