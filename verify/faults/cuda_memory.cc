// A device that is full. PyTorch's allocator tries again after one failure, so there is no second
// chance.
#include "verify/faults/interposed.h"

namespace shardproof::faults::cuda_memory {
namespace {

const FaultRegistration kRegistration{MakeInterposedFault(
    {.id = "cuda/memory",
     .what = "a device has no memory left from one allocation on",
     .example = {"bytes=64,rank=0",
                 "on rank 0, the first call of cudaMalloc, of those of at least 64 bytes, and "
                 "all after it return cudaErrorMemoryAllocation"},
     .model = FaultModel::kMustAbortCleanly,
     .function = "cudaMalloc",
     .act = "error=cudaErrorMemoryAllocation",
     .from_then_on = true,
     .becomes = "return cudaErrorMemoryAllocation"})};

}  // namespace
}  // namespace shardproof::faults::cuda_memory
