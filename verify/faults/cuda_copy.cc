// A copy fails, as after a kernel that went astray.
#include "verify/faults/interposed.h"

namespace shardproof::faults::cuda_copy {
namespace {

const FaultRegistration kRegistration{MakeInterposedFault(
    {.id = "cuda/copy",
     .what = "a copy to or from a device fails",
     .example = {"0:0",
                 "on rank 0, the first call of cudaMemcpyAsync returns cudaErrorIllegalAddress"},
     .model = FaultModel::kMustAbortCleanly,
     .function = "cudaMemcpyAsync",
     .act = "error=cudaErrorIllegalAddress",
     .becomes = "returns cudaErrorIllegalAddress"})};

}  // namespace
}  // namespace shardproof::faults::cuda_copy
