// Running a Case for the command line.
#pragma once

#include "verify/cli/common/present.h"
#include "verify/launch/subject.h"

namespace shardproof {

/// Runs the case on ranks of its own, or on those that RANK and its companions announce.
/// \returns the exit code, the same on every rank.
int Execute(const Case& test_case, const ExecuteOptions& options);

/// The interpreter and what of ours it runs.
PythonOptions PythonFrom(const ExecuteOptions& options);

}  // namespace shardproof
