// Quantised weights by the numbers that they stand for, held against numbers of another dialect or
// of the source.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "verify/compare/checkpoint.h"
#include "verify/maps/apply.h"

namespace shardproof::compare {

/// What a pair of numbers comes to.
struct NumbersCompared {
  uint64_t beyond = 0;       ///< elements that are further apart than their bound
  double worst = 0;          ///< the largest error as a part of its bound
  uint64_t worst_index = 0;  ///< where it is
  std::string expected;      ///< there, with its bound
  std::string seen;
  std::string explanation;  ///< of a mistake, where there is a simple one
  std::string unjudged;     ///< why it is neither within the bound nor known to be wrong; or empty
  bool IsWrong() const { return unjudged.empty() && (beyond > 0 || !explanation.empty()); }
};

/// Whether at least one of the two views has a quantised weight in it, or the two are floats of
/// different dtypes, which are then held against each other within half a step of each.
bool AreNumbers(const Inputs& inputs, const maps::Held& held);

/// What is quantised in a view and cannot be read as numbers, and why; empty: nothing.
std::string UnknownIn(const Inputs& inputs, const maps::View& view);

/// What the numbers of a view were before they were rounded: "NVFP4 of ModelOpt", "BF16".
std::string KindsIn(const Inputs& inputs, const maps::View& view);

/// The bound of each element is what each side's format implies: half a step of the codes' grid
/// times the scale, half a step of the scale times the code, half a step of a float's dtype.
/// \pre one shape. \error kBadInput if a file ends early.
Result<NumbersCompared> CompareNumbers(const Inputs& inputs, const maps::Held& held);

}  // namespace shardproof::compare
