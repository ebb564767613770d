// Ranks that torchrun, srun or a shell started, each with this very command: rank 0 leads.
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "verify/launch/launcher.h"
#include "verify/launch/subject_ranks.h"

namespace shardproof {

/// Ranks that someone else started (torchrun, srun, a shell), each running this very command.
struct JoinedRanks {
  int64_t rank = 0;
  int64_t world_size = 1;
  c10::intrusive_ptr<c10d::Store> store;
  std::string prefix;  ///< of all keys in the store at MASTER_ADDR that `store` reaches
  std::string interface;
};

/// Finds them by RANK (or SLURM_PROCID), WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
/// \returns nullopt if neither is set. \error kBadInput naming the variable that is wrong or
/// absent; kPeer if the store cannot be reached.
Result<std::optional<JoinedRanks>> JoinRanks(std::chrono::milliseconds timeout);

/// One of them: it carries out its part of what rank 0 orders.
class JoinedRank {
 public:
  /// \param python  what runs a subject
  JoinedRank(JoinedRanks ranks, PythonOptions python)
      : ranks_(std::move(ranks)), subject_(std::move(python)) {}
  const JoinedRanks& ranks() const { return ranks_; }
  bool IsStanding() const { return subject_.IsStanding(); }
  /// Runs this rank of one launch, in a group of the phase's ranks only. \returns how it ended.
  RankExit CarryOut(const PhaseRun& run, int64_t order);

 private:
  JoinedRanks ranks_;
  SubjectRanks subject_;
};

/// On rank 0: leads the joined ranks through phases of at most their number of ranks.
class JoinedLauncher : public Launcher {
 public:
  JoinedLauncher(JoinedRanks ranks, PythonOptions python)
      : ranks_(ranks), own_(std::move(ranks), std::move(python)) {}
  std::string CannotRun(const PhasePlan& phase) const override;
  bool IsStanding() const override { return own_.IsStanding(); }
  Result<std::vector<RankExit>> Launch(const PhaseRun& run) override;
  /// Tells the others how it all came out, and waits until they know.
  void Dismiss(int exit_code);

 private:
  RankExit AwaitRank(const PhaseRun& run, int64_t order, int64_t rank);

  JoinedRanks ranks_;
  JoinedRank own_;
  int64_t orders_ = 0;
  /// Ranks that did not report back; nobody here can end or replace them.
  std::set<int64_t> silent_;
};

/// On every other rank: does what rank 0 says until dismissed. \returns the common exit code.
int FollowRank0(JoinedRank& rank, std::chrono::milliseconds patience);

}  // namespace shardproof
