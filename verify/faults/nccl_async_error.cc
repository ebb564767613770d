// What a watchdog that asks its communicators finds.
#include "verify/faults/interposed.h"

namespace shardproof::faults::nccl_async_error {
namespace {

const FaultRegistration kRegistration{MakeInterposedFault(
    {.id = "nccl/async-error",
     .what = "a communicator reports an error after a collective that succeeded",
     .example = {"0:0",
                 "on rank 0, the first call of ncclAllReduce has its communicator report "
                 "ncclRemoteError from then on"},
     .model = FaultModel::kMustEndTheRun,
     .function = "ncclAllReduce",
     .act = "async-error=ncclRemoteError",
     .becomes = "has its communicator report ncclRemoteError from then on"})};

}  // namespace
}  // namespace shardproof::faults::nccl_async_error
