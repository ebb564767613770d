// What happens to a rank when it has reached a stage, or before one of its collectives.
#pragma once

#include <functional>
#include <string>

#include "verify/faults/fault.h"

namespace shardproof {

/// What there must be for a fault of a rank.
enum class NeedsOf {
  kRank,         ///< any will do
  kProcess,      ///< it happens to a process as a whole: not to simulated ranks, which share one
  kConnections,  ///< it happens to a process and its connections with other ranks
};

/// The id's last word is what a subject's rank is told to do to itself (shardproof/_faults.py).
/// \param becomes  what becomes of the rank, in words: "is killed"
/// \param act  what happens to the rank; called once, on it
Fault RankFault(const std::string& id, const std::string& what, FaultModel model,
                const std::string& becomes, std::function<void(const FaultSite&)> act,
                NeedsOf needs = NeedsOf::kRank);

}  // namespace shardproof
