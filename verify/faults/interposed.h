// Faults that strike a subject in its calls of CUDA and NCCL, by the library that is loaded before
// its own (verify/interpose). The reference has seams of its own for what they do.
#pragma once

#include <string>

#include "verify/faults/fault.h"

namespace shardproof {

struct InterposedFault {
  std::string id;
  std::string what;
  FaultExample example;
  FaultModel model = FaultModel::kMustAbortCleanly;
  std::string function;  ///< that is struck if WHERE does not say what=
  std::string act;       ///< as a rule has it: "error=ncclRemoteError"
  bool from_then_on = false;
  std::string becomes;  ///< in words, of the call: "returns ncclRemoteError"
};

Fault MakeInterposedFault(InterposedFault fault);

}  // namespace shardproof
