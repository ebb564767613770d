// What one generated case came to, small enough to be sent from process to process.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "verify/verdict/run_result.h"

namespace shardproof {

/// How one property judged one case.
struct PropertyOutcome {
  Verdict verdict = Verdict::kSkip;
  uint64_t comparisons = 0;
};

/// What of a finding tells it from others.
struct FindingOutcome {
  std::string property;
  std::string kind;
  std::optional<Phase> phase;
  std::string stage;
  std::string tensor;
  std::string failure_class;
  std::string cause;  ///< Facts::cause: it depends on no size and no name
  std::string message;
};

struct CaseOutcome {
  uint64_t index = 0;  ///< by which its case goes, where it has a place among others
  Verdict verdict = Verdict::kInconclusive;
  std::string reason;  ///< why it could not be judged at all, or empty
  /// How its process ended under it, in Facts::exit's words: "signal 11", or "hang" if it had to be
  /// ended; empty: it did not.
  std::string exit;
  std::map<std::string, PropertyOutcome> properties;
  std::vector<FindingOutcome> findings;  ///< the first few, causes first
};

CaseOutcome OutcomeOf(const RunResult& result);
/// Of a case that was never judged.
CaseOutcome NotJudged(uint64_t index, std::string reason);

nlohmann::json OutcomeToJson(const CaseOutcome& outcome);
/// Of what OutcomeToJson made. \throws nlohmann::json::exception otherwise.
CaseOutcome OutcomeFromJson(const nlohmann::json& json);

}  // namespace shardproof
