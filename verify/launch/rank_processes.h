// Ranks as processes: started, watched until all have ended, ended if they hang.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "verify/launch/launcher.h"
#include "verify/rank/evidence_paths.h"

namespace shardproof {

/// What a rank may take, however short the deadline, until its first record: it may import much.
inline constexpr auto kStartAllowance = std::chrono::seconds(60);

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
  pid_t Pid(int64_t rank) const override { return pids_.at(rank); }

 private:
  std::function<void(int64_t rank)> be_rank_;
  std::map<int64_t, pid_t> pids_;
};

/// An empty directory for the evidence of one launch. \error kBadInput if it cannot be made.
Status MakeEvidenceDirectory(const PhaseRun& run);

/// 0, 1, ... of all ranks of `run`.
std::vector<int64_t> EveryRank(const PhaseRun& run);

/// Starts ranks of `run`, ascending, and waits for their ends, as Launcher::Launch promises.
/// \returns how each ended, in the order of `ranks`.
Result<std::vector<RankExit>> LaunchRanks(const PhaseRun& run, RankProcesses& processes,
                                          const std::vector<int64_t>& ranks);

/// All of them.
Result<std::vector<RankExit>> LaunchRanks(const PhaseRun& run, RankProcesses& processes);

/// Bytes of what a rank has written of its facts: as long as it grows, the rank makes progress.
uint64_t FactsBytes(const PhaseRun& run, int64_t rank);

}  // namespace shardproof
