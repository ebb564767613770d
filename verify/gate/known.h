// The file of known failures: who has taken on which finding, and until when.
#pragma once

#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/verdict/run_result.h"

namespace shardproof::gate {

/// One entry. It names one finding by its fingerprint, or several by property, kind and tensor.
struct KnownFailure {
  std::string fingerprint;  ///< or empty
  std::string property;     ///< these three: or empty
  std::string kind;
  std::string tensor;  ///< a pattern: * is any text, ? any character; empty: of no tensor
  KnownAs as;

  /// "63d598fe15a2f407", or "loading.equals_source differs of 'model.*'"
  std::string Name() const;
};

/// Today in UTC, "2026-11-27".
std::string Today();

/// \param today  entries that expire before it are expired
/// \error kBadInput, one line: the file, the field, what was expected and what was found.
Result<std::vector<KnownFailure>> ReadKnown(const std::string& path, const std::string& today);

/// Whether all of `text` is as the pattern says.
bool MatchesPattern(const std::string& text, const std::string& pattern);

}  // namespace shardproof::gate
