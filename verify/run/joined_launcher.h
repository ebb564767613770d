// Ranks that torchrun, srun or a shell started, each with this very command: rank 0 leads.
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "verify/run/launcher.h"

namespace shardproof {

/// Ranks that someone else started (torchrun, srun, a shell), each running this very command.
struct JoinedRanks {
  int64_t rank = 0;
  int64_t world_size = 1;
  c10::intrusive_ptr<c10d::Store> store;
  std::string interface;
};

/// Finds them by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
/// \returns nullopt if RANK is not set. \error kBadInput naming the variable that is wrong or
/// absent; kPeer if the store cannot be reached.
Result<std::optional<JoinedRanks>> JoinRanks(std::chrono::milliseconds timeout);

/// On rank 0: leads the joined ranks through phases of at most their number of ranks.
class JoinedLauncher : public Launcher {
 public:
  explicit JoinedLauncher(JoinedRanks ranks) : ranks_(std::move(ranks)) {}
  std::string CannotRun(const PhasePlan& phase) const override;
  Result<std::vector<RankExit>> Launch(const PhaseRun& run) override;
  /// Tells the others how it all came out, and waits until they know.
  void Dismiss(int exit_code);

 private:
  JoinedRanks ranks_;
  int64_t orders_ = 0;
  /// Ranks that did not report back; nobody here can end or replace them.
  std::set<int64_t> silent_;
};

/// On every other rank: does what rank 0 says until dismissed. \returns the common exit code.
int FollowRank0(const JoinedRanks& ranks, std::chrono::milliseconds patience);

}  // namespace shardproof
