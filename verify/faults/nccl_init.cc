// A rank does not come into a communicator: no shared memory, no socket, no file descriptor left.
#include "verify/faults/interposed.h"

namespace shardproof::faults::nccl_init {
namespace {

const FaultRegistration kRegistration{MakeInterposedFault(
    {.id = "nccl/init",
     .what = "a rank's NCCL communicator cannot be created",
     .example = {"0:0",
                 "on rank 0, the first call of ncclCommInitRankConfig returns ncclSystemError"},
     .model = FaultModel::kMustEndTheRun,
     .function = "ncclCommInitRankConfig",
     .act = "error=ncclSystemError",
     .becomes = "returns ncclSystemError"})};

}  // namespace
}  // namespace shardproof::faults::nccl_init
