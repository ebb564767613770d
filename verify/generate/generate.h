// Cases that nobody wrote: everything that a Case can say of a model, a mesh and a way of loading,
// drawn from a seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verify/case/case.h"
#include "verify/case/fault_draw.h"

namespace shardproof {

struct GenerateOptions {
  /// Or a Python file: then what frameworks do not have is left out (parameters that are scalars,
  /// integers or codes, tensors under other keys), and what only the reference reads.
  std::string subject = "reference";
  bool attributes = true;         ///< user attributes on tensors, which a subject may not keep
  std::string transport = "sim";  ///< of the reference
  int64_t world = 0;              ///< ranks of every case; 0: 1 to world_max
  int64_t world_max = 16;
  /// Some cases have faults, and are judged by what comes of them alone: of these, in this order,
  /// and of a few that are drawn in pairs. Empty: none has.
  std::vector<DrawnFault> faults = {};
  bool large = false;  ///< one tensor is large enough for memory to be judged
};

/// The case number `index` of the stream that `seed` begins: a pure function of its arguments, and
/// always a valid Case (ParseCase takes its JSON).
Case GenerateCase(const GenerateOptions& options, uint64_t seed, uint64_t index);

}  // namespace shardproof
