// The rules by which libshardproof_interpose.so makes calls of a real program fail: what
// SHARDPROOF_INTERPOSE says. The library and the verifier both compile this; it stands on the
// standard library alone.
//
//   RULES  RULE[;RULE...]
//   RULE   FUNCTION:ACT[,WHEN...], words in any order      ncclAllReduce:call=3,rank=1,drop
//   ACT    error=NAME|CODE, delay=MS, hang, hang=SECONDS, drop, flip=BIT, async-error=NAME|CODE
//   WHEN   call=N (from 0; the first if not said), rank=R|all (all), bytes=N (at least), then-on
//
// FUNCTION may be a point of libfiu's POSIX preload: posix/io/rw/write:call=2,error=ENOSPC.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/result.h"

namespace shardproof::interpose {

/// Name of the library in the command's folder.
inline constexpr const char* kLibrary = "libshardproof_interpose.so";

/// Of a rule's environment variable, and of that which names the file for its firings.
inline constexpr const char* kRulesVariable = "SHARDPROOF_INTERPOSE";
inline constexpr const char* kLogVariable = "SHARDPROOF_INTERPOSE_LOG";

enum class Function {
#define CUDA_FUNCTION(name, ...) name,
#define DRIVER_FUNCTION(name, ...) name,
#define NCCL_FUNCTION(name, ...) name,
#include "verify/interpose/functions.inc"
  kPosix,  ///< a point of libfiu's, in Rule::point
};
inline constexpr int kFunctions = static_cast<int>(Function::kPosix);

enum class Family { kCuda, kDriver, kNccl, kPosix };

/// What a function does, which says what can be done to it.
enum class Kind {
  kGives,         ///< writes a pointer or a handle: left out, its caller would go on with garbage
  kCopies,        ///< fills memory
  kWaits,         ///< for a stream, an event or the device
  kCollective,    ///< fills memory, on a communicator
  kSends,         ///< is on a communicator, and fills nothing here
  kCommunicator,  ///< ends a communicator
  kAsks,          ///< writes what a communicator reports
  kGroup,         ///< begins or ends a group of NCCL calls
  kPosix,
};

struct FunctionInfo {
  const char* name;
  Family family;
  Kind kind;
};
const FunctionInfo& InfoOf(Function function);

enum class Act { kError, kDelay, kHang, kDrop, kFlip, kAsyncError };

struct Rule {
  std::string text;  ///< as it was written
  Function function = Function::kPosix;
  std::string point;  ///< libfiu's name, of Function::kPosix
  Act act = Act::kError;
  int64_t value = 0;            ///< code, ms, s (0: for ever) or bit
  int64_t call = 0;             ///< of the calls that match, from 0
  bool then_on = false;         ///< every one after it, too
  std::optional<int64_t> rank;  ///< nothing: all of them
  uint64_t bytes_min = 0;       ///< calls of at least so many bytes
};

inline constexpr int kRulesMax = 64;

/// \error kBadInput naming the rule and the word that is wrong, and what was expected.
Result<std::vector<Rule>> ParseRules(std::string_view text);

/// The name of an error of the family, "cudaErrorMemoryAllocation"; its number if it has none here.
std::string NameOfError(Family family, int64_t code);

}  // namespace shardproof::interpose
