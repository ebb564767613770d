#include "verify/rank/evidence_paths.h"

#include <fmt/format.h>

namespace shardproof {

std::string ErrorsPath(const PhaseRun& run, int64_t rank) {
  return fmt::format("{}/rank_{}.stderr", run.evidence, rank);
}

std::string TemporaryPath(const PhaseRun& run, int64_t rank) {
  return fmt::format("{}/rank_{}.tmp", run.evidence, rank);
}

std::string StorePath(const PhaseRun& run) { return run.evidence + "/rendezvous"; }

}  // namespace shardproof
