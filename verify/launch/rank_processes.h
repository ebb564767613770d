// Ranks as processes: started, watched until all have ended, ended if they hang.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <vector>

#include "verify/launch/launcher.h"
#include "verify/rank/evidence_paths.h"

namespace shardproof {

/// How the ranks of one launch are started and ended.
class RankProcesses {
 public:
  virtual ~RankProcesses() = default;
  /// Starts a rank, whose stderr goes to ErrorsPath. Ranks are started in order, each once.
  /// \error kFailed if it cannot be started.
  virtual Status Start(const PhaseRun& run, int64_t rank) = 0;
  /// The wait status of a rank that has ended; not asked again after that.
  virtual std::optional<int> Ended(int64_t rank) = 0;
  /// Ends a rank that has not ended, and waits until it is gone.
  virtual void End(int64_t rank) = 0;
  /// The process of a rank that has one of its own on this machine; else -1.
  virtual pid_t Pid(int64_t) const { return -1; }
};

/// Children of this process, which must have no threads; they end when it does.
class ForkedProcesses : public RankProcesses {
 public:
  /// \param be_rank   called in the child; must not return.
  explicit ForkedProcesses(std::function<void(int64_t rank)> be_rank)
      : be_rank_(std::move(be_rank)) {}
  Status Start(const PhaseRun& run, int64_t rank) override;
  std::optional<int> Ended(int64_t rank) override;
  void End(int64_t rank) override;
  pid_t Pid(int64_t rank) const override { return pids_[static_cast<size_t>(rank)]; }

 private:
  std::function<void(int64_t rank)> be_rank_;
  std::vector<pid_t> pids_;
};

/// An empty directory for the evidence of one launch. \error kBadInput if it cannot be made.
Status MakeEvidenceDirectory(const PhaseRun& run);

/// Starts all ranks of `run` and waits for their ends, as Launcher::Launch promises.
Result<std::vector<RankExit>> LaunchRanks(const PhaseRun& run, RankProcesses& processes);

}  // namespace shardproof
