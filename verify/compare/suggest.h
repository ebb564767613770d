// A map for names that do not match: a prefix, a wrapper's name in the middle, or plainly the same
// values under another name.
#pragma once

#include <string>

#include "src/core/result.h"
#include "verify/compare/name_map.h"
#include "verify/compare/pairing.h"

namespace shardproof::compare {

struct Suggestion {
  NameMap map;         ///< prefixes and renames only
  std::string reason;  ///< "A's names begin with 'model.'", or empty: nothing to suggest
};

/// Looks for a map that pairs what `pairing` left over. Reads values only where names alone do not
/// say it. \error kBadInput if a file cannot be read any more.
Result<Suggestion> Suggest(const Checkpoint& a, const Checkpoint& b, const Pairing& pairing);

}  // namespace shardproof::compare
