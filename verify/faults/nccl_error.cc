// NCCL tells a rank that a peer has failed, as when a network card goes away.
#include "verify/faults/interposed.h"

namespace shardproof::faults::nccl_error {
namespace {

const FaultRegistration kRegistration{MakeInterposedFault(
    {.id = "nccl/error",
     .what = "one NCCL collective returns ncclRemoteError on one rank and is not performed "
             "there",
     .example = {"0", "on rank 1, the first call of ncclAllReduce returns ncclRemoteError"},
     .model = FaultModel::kMustEndTheRun,
     .function = "ncclAllReduce",
     .act = "error=ncclRemoteError",
     .becomes = "returns ncclRemoteError"})};

}  // namespace
}  // namespace shardproof::faults::nccl_error
