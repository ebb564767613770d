// What a Case has: the words by which a set of generated cases says what it was made of.
#pragma once

#include <string>
#include <vector>

#include "verify/case/case.h"

namespace shardproof {

/// Sorted, each once: "dtype.BF16", "shape.empty", "mesh.2-D", "ties", ...
std::vector<std::string> FeaturesOf(const Case& test_case);

/// Every word that FeaturesOf can give, sorted: what a set of cases might have had.
std::vector<std::string> KnownFeatures();

/// What a case turns out to have had only when it has run: of two faults that were to strike it,
/// both did.
inline constexpr const char* kBothStruck = "struck by two, and both came to it";

}  // namespace shardproof
