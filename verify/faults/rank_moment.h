// What happens to a rank when it has reached a stage, or before one of its collectives.
#pragma once

#include <functional>
#include <string>

#include "verify/fault/fault.h"

namespace shardproof {

/// What there must be for a fault of a rank.
struct RankNeeds {
  bool process = false;      ///< of its own: simulated ranks share one
  bool child = false;        ///< which the launcher has started, and nobody else
  bool connections = false;  ///< with other ranks
};

/// The id's last word is what a subject's rank is told to do to itself (_rank/_faults.py).
/// \param becomes  what becomes of the rank, in words: "is killed"
/// \param act  what happens to the rank; called once, on it
struct AtAMoment {
  std::string id;
  std::string what;
  FaultExample example;
  FaultModel model = FaultModel::kMustEndTheRun;
  std::string becomes;  ///< of the rank, in words: "is killed"
  std::function<void(const FaultSite&)> act;
  RankNeeds needs = {};
  FaultDraw draw = {};
};

Fault RankFault(AtAMoment made);

}  // namespace shardproof
