// When a fault strikes: the n-th of the calls that it is about, on one rank or on all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/core/result.h"
#include "src/stage/stage.h"
#include "verify/case/case.h"

namespace shardproof {

/// What is about to be done where a fault may strike.
struct FaultCall {
  std::string what;    ///< a path, a tensor, a collective
  uint64_t bytes = 0;  ///< that are written or allocated, or travel
};

struct Trigger {
  int64_t number = 0;           ///< of the calls that match, from 0
  std::optional<int64_t> rank;  ///< nothing: all of them
  std::string what;             ///< calls with this in their FaultCall::what; empty: all
  uint64_t bytes_min = 0;       ///< calls of at least so many bytes
  std::optional<Stage> stage;   ///< calls while the rank works towards this stage; nothing: all

  bool Matches(const FaultCall& call, const std::string& at) const;
};

/// A place where only fiu-ctrl makes a fault strike.
inline constexpr const char* kNever = "never";

/// "N", "N:RANK", or any of call=N, rank=R|all, what=TEXT, bytes=N and stage=NAME, with commas in
/// between. The last rank and the first call, if they are not said. Of kNever nothing.
/// \error kBadInput saying what was expected.
Result<std::optional<Trigger>> ParseTrigger(const Case& test_case, const std::string& where);

/// How `where` is written, for a Fault.
inline constexpr const char* kTriggerHelp =
    "N or N:RANK, such as 0 or 3:1, where N counts calls from 0 and RANK is the last rank if not "
    "given; or some of call=N, rank=R (or all), what=TEXT, bytes=N (at least), stage=NAME: "
    "what=norm.weight,rank=0; or never, which waits until fiu-ctrl enables the fault";

}  // namespace shardproof
