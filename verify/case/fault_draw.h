// How generated cases draw a fault: stated where the fault is registered, read by the generator.
#pragma once

#include <limits>
#include <string>

namespace shardproof {

struct FaultDraw {
  /// Where it strikes for certain, in a case of any shape.
  enum class Certain {
    kNowhere,
    kEarlyStage,  ///< RANK@STAGE, a stage that every rank comes to
    kFirstCall,   ///< 0:0, the first call of rank 0
    kAllocation,  ///< N:0, one of the first allocations of rank 0
  };
  /// Where it may strike, or never come to it.
  enum class Anywhere {
    kNowhere,
    kCall,        ///< N:RANK
    kCollective,  ///< RANK@#N
  };

  Certain certain = Certain::kNowhere;
  Anywhere anywhere = Anywhere::kNowhere;
  bool needs_processes = false;  ///< simulated ranks share one, and have no connections
  bool needs_others = false;     ///< more ranks than one
  bool only_simulated = false;
  /// Its place among the faults that a draw is made of: what a seed gives depends on it. A new one
  /// comes after all others.
  int place = std::numeric_limits<int>::max();
};

struct DrawnFault {
  std::string id;
  FaultDraw draw;
};

}  // namespace shardproof
