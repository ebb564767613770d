// A rank of a subject under faults that strike its system calls: its process runs under a tracer.
#pragma once

#include <string>
#include <vector>

#include "verify/rank/worker.h"

namespace shardproof {

/// Whether faults of the phase strike this rank's system calls.
bool IsStruckInCalls(const PhaseRun& run, int64_t rank);

/// The variables that faults of the phase put into this rank's environment.
std::map<std::string, std::string> EnvironmentOfFaults(const PhaseRun& run, int64_t rank);

/// Where what strikes a rank from outside puts that on record, before it acts.
std::string FaultsPath(const PhaseRun& run, int64_t rank);

/// Puts what the library that stands before CUDA and NCCL has logged of a rank among its fault
/// records; to be called once the rank has ended. \error if its log cannot be read.
Status RecordInterposed(const PhaseRun& run, int64_t rank);

/// In a child: runs `words`, its environment and output being this process's. Calls that concern
/// files where the phase saves (the directory, what is below it, and what lies beside it with its
/// name as a prefix) or, of reads and mappings, those of the source, are struck; no others are.
/// Ends as the program did.
[[noreturn]] void BeStruckProgram(const PhaseRun& run, int64_t rank,
                                  const std::vector<std::string>& words);

}  // namespace shardproof
