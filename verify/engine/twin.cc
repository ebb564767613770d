#include "verify/engine/twin.h"

#include "verify/case/names.h"
#include "verify/evidence/reader.h"
#include "verify/launch/order.h"

namespace shardproof {
namespace {

constexpr uint64_t kTwinBytesMax = uint64_t{4} << 30;

}  // namespace

bool WantsTwin(const Case& test_case) {
  return test_case.subject != kReference && test_case.model.tensors.empty();
}

Result<oracle::Twin> RunTwin(const Case& test_case, const std::string& source,
                             const std::string& directory,
                             const std::vector<CaptureRequest>& captures, Launcher& launcher) {
  PhaseRun run;
  run.test_case = test_case;
  run.test_case.faults.clear();
  run.phase = PhaseOfTwin();
  run.source = source;
  run.evidence = directory + "/twin";
  run.captures = captures;
  run.is_twin = true;
  SP_ASSIGN(const std::vector<RankExit> exits, launcher.Launch(run));
  RankEvidence rank;
  rank.exit = exits.at(0).exit;
  uint64_t budget_bytes = kTwinBytesMax;
  ReadRank(run.evidence + "/rank_0", "twin/rank_0", budget_bytes, rank);
  return oracle::TwinFrom(rank);
}

}  // namespace shardproof
