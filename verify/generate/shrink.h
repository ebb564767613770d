// Smaller cases that might still show what a case showed: pure.
#pragma once

#include <vector>

#include "verify/case/case.h"

namespace shardproof {

/// Valid cases that are each one step simpler than `test_case`, those that leave out most first:
/// fewer tensors, fewer ranks, smaller shapes, plainer dtypes, shorter names, fewer options. Finite
/// chains: no case is among the simpler ones of its own simpler ones.
std::vector<Case> SimplerCases(const Case& test_case);

}  // namespace shardproof
