// Starts the ranks of one phase and waits until all have ended, one way or another.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "verify/run/worker.h"

namespace shardproof {

/// How one rank ended.
struct RankExit {
  std::string exit;         ///< "ok", "exit 3", "signal 9", "hang"
  std::string stderr_tail;  ///< its last lines, unless it ended well
};

class Launcher {
 public:
  virtual ~Launcher() = default;
  /// Why this launcher cannot run the phase, or nothing.
  virtual std::string CannotRun(const PhasePlan& phase) const = 0;
  /// Whether ranks share a standing process, so that a failure wants a second run from nothing.
  virtual bool IsStanding() const { return false; }
  /// Runs all ranks of `run` to their ends; one that shows no progress for the Case's deadline is
  /// ended and called "hang". \error kInternal if ranks cannot be started at all.
  virtual Result<std::vector<RankExit>> Launch(const PhaseRun& run) = 0;
};

/// Ranks forked from this process, which must have no threads.
std::unique_ptr<Launcher> MakeForkLauncher();

/// Ranks that are threads over the simulated transport: of one forked child a launch; or of this
/// process, faster and as much at the mercy of what they do.
std::unique_ptr<Launcher> MakeSimLauncher(bool in_this_process);

/// Ranks that are forked once for each number of them and connected once, and then run launch after
/// launch, as long as all goes well. `directory` is where they meet.
std::unique_ptr<Launcher> MakeStandingLauncher(std::string directory);

}  // namespace shardproof
