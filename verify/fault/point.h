// A named place where a fault may strike. Whether it does, libfiu is asked every time: it asks back
// what the fault's trigger says, unless somebody has switched the point on or off meanwhile
// (fiu-ctrl).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "verify/evidence/evidence.h"
#include "verify/fault/trigger.h"

namespace shardproof {

using FaultLog = std::function<void(FaultRecord record)>;

class FaultPoint {
 public:
  struct Options {
    std::string name;                ///< libfiu's: the fault's id
    std::optional<Trigger> trigger;  ///< nothing: only fiu-ctrl can make it strike
    int64_t rank = 0;
    bool from_then_on = false;           ///< every call after the one that was hit, too
    std::function<std::string()> stage;  ///< that the rank works towards
    FaultLog log;
  };
  explicit FaultPoint(Options options);

  /// Whether the fault strikes at this call. If so `record` is on record when this returns.
  bool Strikes(const FaultCall& call, FaultRecord record);
  /// How often it has.
  int64_t struck() const { return struck_; }

 private:
  static int Ask(const char* name, int* failnum, void** failinfo, unsigned int* flags);
  bool Wants(const FaultCall& call);

  Options options_;
  int64_t matched_ = 0;
  int64_t struck_ = 0;
};

/// Has fiu-ctrl -f BASE switch the points of this process, by pipes named BASE-PID.in and
/// BASE-PID.out. \error kBadInput if they cannot be made.
Status ControlPointsBy(const std::string& base);

}  // namespace shardproof
