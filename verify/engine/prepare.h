// Everything that can be wrong with a Case before a rank is started.
#pragma once

#include <string>
#include <vector>

#include "verify/case/case.h"
#include "verify/engine/verification.h"
#include "verify/oracle/oracle.h"

namespace shardproof {

/// What all phases of a verification load.
struct Prepared {
  std::string source;  ///< the directory of the checkpoint
  std::vector<oracle::TensorLocation> locations;
};

/// Finds the source, or makes one in the directory of `options`, and holds the Case against it: the
/// model's shapes and dtypes, its faults, its bug, where it is to save, what its subject can run.
/// \error kBadInput, in one line.
Result<Prepared> Prepare(const Case& test_case, const VerifyOptions& options);

}  // namespace shardproof
