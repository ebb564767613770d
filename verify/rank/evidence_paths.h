// Where what belongs to one rank of a launch lies.
#pragma once

#include <cstdint>
#include <string>

#include "verify/rank/worker.h"

namespace shardproof {

/// <run.evidence>/rank_<k>.stderr
std::string ErrorsPath(const PhaseRun& run, int64_t rank);

/// <run.evidence>/rank_<k>.tmp, which TMPDIR is in ranks that are forked for one launch.
std::string TemporaryPath(const PhaseRun& run, int64_t rank);

/// <run.evidence>/rendezvous, the file that forked ranks meet by.
std::string StorePath(const PhaseRun& run);

}  // namespace shardproof
