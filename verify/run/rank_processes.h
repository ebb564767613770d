// Ranks as child processes of this one: started, watched until all have ended, ended if they hang.
#pragma once

#include <functional>
#include <vector>

#include "verify/run/launcher.h"

namespace shardproof {

/// An empty directory for the evidence of one launch. \error kBadInput if it cannot be made.
Status MakeEvidenceDirectory(const PhaseRun& run);

/// Starts the ranks of `run`, each a fork of this process, which must have no threads, and waits for
/// their ends. A rank's stderr goes to <run.evidence>/rank_<k>.stderr; it ends when this process does.
/// \param be_rank   called in the child; must not return.
/// \error kFailed if a rank cannot be started.
Result<std::vector<RankExit>> LaunchProcesses(const PhaseRun& run,
                                              const std::function<void(int64_t rank)>& be_rank);

}  // namespace shardproof
