// What a soak came to so far: counts by case, property and feature.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "verify/campaign/outcome.h"

namespace shardproof {

/// One property over all cases.
struct PropertyTally {
  uint64_t judged = 0;  ///< cases in which it made comparisons
  uint64_t comparisons = 0;
  uint64_t failed = 0;                   ///< cases
  uint64_t inconclusive = 0;             ///< cases
  uint64_t skipped = 0;                  ///< cases
  std::optional<uint64_t> first_failed;  ///< index of the first of the stream's
};

/// A case that did not pass.
struct FailedCase {
  Case test_case;
  CaseOutcome outcome;
  bool numbered = true;  ///< by outcome.index among the stream's cases, not among the files'
};

struct SoakSummary {
  uint64_t passed = 0;  ///< cases
  uint64_t failed = 0;
  uint64_t inconclusive = 0;
  uint64_t comparisons = 0;
  uint64_t ranks = 0;  ///< over all cases
  double duration_ms = 0;
  uint64_t next = 0;                  ///< every case below this index is counted
  std::set<uint64_t> counted_beyond;  ///< and these
  std::map<std::string, PropertyTally> properties;
  std::map<std::string, uint64_t> features;  ///< cases that had it
  std::map<std::string, std::set<std::string>>
      beside;                        ///< features seen in one case, by the lesser
  std::vector<FailedCase> failures;  ///< the first few that failed
  std::vector<FailedCase> unclear;   ///< and of those that could not be judged

  uint64_t cases() const { return passed + failed + inconclusive; }
  uint64_t PairsSeen() const;
  /// \param numbered  whether it is one of the stream, which `next` counts.
  void Count(const Case& test_case, const CaseOutcome& outcome, bool numbered);
};

nlohmann::json SummaryToJson(const SoakSummary& summary);
/// What SummaryToJson made. \error kBadInput naming the field.
Result<SoakSummary> SummaryFromJson(const nlohmann::json& json);

}  // namespace shardproof
