#include "verify/engine/twin.h"

#include "verify/case/names.h"
#include "verify/evidence/reader.h"
#include "verify/launch/order.h"

namespace shardproof {
namespace {

constexpr uint64_t kTwinBytesMax = uint64_t{4} << 30;

PhaseRun RunOfTwin(const Case& test_case, const std::string& source, const std::string& evidence) {
  PhaseRun run;
  run.test_case = test_case;
  run.test_case.faults.clear();
  run.phase = PhaseOfTwin();
  run.source = source;
  run.evidence = evidence;
  run.is_twin = true;
  return run;
}

Result<RankEvidence> Launch(const PhaseRun& run, Launcher& launcher) {
  SP_ASSIGN(const std::vector<RankExit> exits, launcher.Launch(run));
  RankEvidence rank;
  rank.exit = exits.at(0).exit;
  uint64_t budget_bytes = kTwinBytesMax;
  ReadRank(run.evidence + "/rank_0", "twin/rank_0", budget_bytes, rank);
  return rank;
}

}  // namespace

bool WantsTwin(const Case& test_case) {
  return test_case.subject != kReference && test_case.model.tensors.empty();
}

Result<oracle::Twin> RunTwin(const Case& test_case, const std::string& source,
                             const std::string& directory,
                             const std::vector<CaptureRequest>& captures, Launcher& launcher) {
  PhaseRun run = RunOfTwin(test_case, source, directory + "/twin");
  run.captures = captures;
  SP_ASSIGN(const RankEvidence rank, Launch(run, launcher));
  return oracle::TwinFrom(rank);
}

Result<std::vector<TwinStep>> RunTwinSteps(const Case& test_case, const std::string& source,
                                           const std::string& directory, const std::string& steps,
                                           Launcher& launcher) {
  PhaseRun run = RunOfTwin(test_case, source, directory + "/twin_steps");
  run.steps = steps;
  SP_ASSIGN(RankEvidence rank, Launch(run, launcher));
  if (!rank.closed || !rank.errors.empty())
    return Error{ErrorCode::kFailed, oracle::HowEnded(rank, "its steps were over")};
  return std::move(rank.twin_steps);
}

}  // namespace shardproof
