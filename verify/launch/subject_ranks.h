// Ranks of a Python subject on this machine: forks of a standing Python process, or, where that
// matters, processes that start from nothing.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "verify/launch/subject.h"
#include "verify/launch/warm_processes.h"

namespace shardproof {

/// All that ranks of a launch are told, as shardproof/_rank/_rank.py reads it.
nlohmann::json OrderForSubject(const PhaseRun& run);

/// Where ranks find it.
std::string OrderPath(const PhaseRun& run);

class SubjectRanks {
 public:
  explicit SubjectRanks(PythonOptions options) : options_(std::move(options)) {}
  /// Whether ranks have been forked by a standing process.
  bool IsStanding() const { return warm_ != nullptr; }
  /// Runs some ranks of a launch, whose order is written, to their ends, as Launcher::Launch
  /// promises. \returns how each ended, in the order of `ranks`.
  Result<std::vector<RankExit>> Run(const PhaseRun& run, const std::vector<int64_t>& ranks);

 private:
  bool Warm(const std::string& scratch);
  void BeRank(const PhaseRun& run, int64_t rank) const;

  PythonOptions options_;
  std::unique_ptr<WarmPython> warm_;
  bool cold_ = false;
};

}  // namespace shardproof
