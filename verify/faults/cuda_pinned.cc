// The host has no memory that can be pinned.
#include "verify/faults/interposed.h"

namespace shardproof::faults::cuda_pinned {
namespace {

const FaultRegistration kRegistration{MakeInterposedFault(
    {.id = "cuda/pinned",
     .what = "one allocation of pinned memory fails",
     .example = {"0:0",
                 "on rank 0, the first call of cudaHostAlloc returns cudaErrorMemoryAllocation"},
     .model = FaultModel::kMustAbortCleanly,
     .function = "cudaHostAlloc",
     .act = "error=cudaErrorMemoryAllocation",
     .becomes = "returns cudaErrorMemoryAllocation"})};

}  // namespace
}  // namespace shardproof::faults::cuda_pinned
