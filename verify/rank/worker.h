// What one rank does in one launch: connect, run the pipeline under observation, close its
// evidence.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/gloo.h"
#include "src/contract/job.h"
#include "verify/oracle/oracle.h"
#include "verify/plan/plan.h"
#include "verify/rank/transport_for_device.h"

namespace shardproof {

/// One launch, the same for all its ranks.
struct PhaseRun {
  Case test_case;
  PhasePlan phase;
  std::string source;                             ///< checkpoint directory
  std::vector<oracle::TensorLocation> locations;  ///< the source's tensors, for faults
  std::string save_to;                            ///< where it saves, or what it resumes lies
  std::string evidence;                           ///< directory of this phase's streams
  std::vector<CaptureRequest> captures;
  bool fresh = false;  ///< every rank starts from nothing
  bool is_twin =
      false;  ///< no phase of the subject: its plain twin, one rank (verify/engine/twin.h)
  /// Where ranks of a subject that trains leave the values of each step, and its twin finds them;
  /// empty: nobody asks for them.
  std::string steps = {};
  std::string others_source = {};  ///< what ranks other than 0 find instead; empty: the source
};

/// How long a rank waits for others before it gives up by itself: less than the launcher's
/// deadline, so that it can still say whom it waited for.
std::chrono::milliseconds RankTimeout(const Case& test_case);

/// Where one rank runs, and how it reaches the others.
struct RankSeat {
  int64_t rank = 0;
  std::shared_ptr<Clock> clock;
  std::function<Result<Reach>()> connect;
  /// Puts what it must into the rank's world, besides what every rank has.
  std::function<void(World&)> adapt;
  /// Hears in one line why the rank did not end well.
  std::function<void(const std::string&)> complain;
  /// Cuts it off from the others, as its end would; of a rank that shares its process.
  std::function<void()> lose = {};
  bool shares_process = false;  ///< with other ranks: what ends one must not end its process
};

/// What RunRank returns of a rank of a shared process that was killed.
inline constexpr int kRankDied = 128 + 9;

/// Runs one rank to its end, in a thread of its own or a process. Everything that goes wrong is in
/// the evidence, and complained of. \returns an exit code: 0, or 1 pipeline failed, 2 bad input, 5
/// the verifier is at fault.
int RunRank(const PhaseRun& run, const RankSeat& seat);

/// The rank that this process is, over the transport of its device. Complains on stderr.
int RunRank(const PhaseRun& run, const c10::intrusive_ptr<c10d::Store>& store,
            const Rendezvous& rendezvous);

}  // namespace shardproof
