// What happens to a rank when it has reached a stage, or before one of its collectives.
#pragma once

#include <functional>
#include <string>

#include "verify/faults/fault.h"

namespace shardproof {

/// The id's last word is what a subject's rank is told to do to itself (shardproof/_faults.py).
/// \param becomes  what becomes of the rank, in words: "is killed"
/// \param act  what happens to the rank; called once, on it
/// \param needs_process  whether it happens to a process as a whole: not to simulated ranks, which
/// share one
Fault RankFault(const std::string& id, const std::string& what, FaultModel model,
                const std::string& becomes, std::function<void(const FaultSite&)> act, bool needs_process = false);

}  // namespace shardproof
