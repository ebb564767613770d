// A map for names that do not match: a prefix, a wrapper's name in the middle, experts that are one
// tensor on the other side, or plainly the same values under another name.
#pragma once

#include <string>

#include "src/core/result.h"
#include "verify/compare/checkpoint.h"
#include "verify/maps/apply.h"

namespace shardproof::compare {

struct Suggestion {
  std::string map;     ///< rules, a line each
  std::string reason;  ///< "A's names begin with 'model.'", or empty: nothing to suggest
};

/// Looks for a map that pairs what was left over. Reads values only where names alone do not say
/// it. \error kBadInput if a file cannot be read any more.
Result<Suggestion> Suggest(const Inputs& inputs, const maps::Applied& left);

}  // namespace shardproof::compare
