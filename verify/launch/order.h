// What ranks that stand and wait are told to do: a PhaseRun as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "verify/rank/worker.h"

namespace shardproof {

nlohmann::json OrderFor(const PhaseRun& run);

/// What is run of a subject's plain twin: one rank that loads.
PhasePlan PhaseOfTwin();

/// What OrderFor made. \error kBadInput if this rank cannot read the source.
Result<PhaseRun> RunFromOrder(const nlohmann::json& order);

}  // namespace shardproof
