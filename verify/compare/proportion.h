// Whether stretches of numbers are those expected times a factor, each by one of its own: the codes
// of a quantised weight are right then, and its scales are not.
#pragma once

#include <string>
#include <vector>

#include "verify/compare/number_pair.h"

namespace shardproof::compare {

/// The explanation, with the first such stretch, or empty. No fit of a quantiser makes it, since
/// all of them stay near what they quantise. \param at  elements that are wrong.
/// \error kBadInput if a file ends early.
Result<std::string> DiagnoseProportion(TensorReader& a, TensorReader& b,
                                       const std::vector<uint64_t>& at);

}  // namespace shardproof::compare
