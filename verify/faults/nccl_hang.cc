// A rank that hangs within NCCL.
#include "verify/faults/interposed.h"

namespace shardproof::faults::nccl_hang {
namespace {

const FaultRegistration kRegistration{MakeInterposedFault(
    {.id = "nccl/hang",
     .what = "one NCCL collective does not return on one rank",
     .example = {"3:0", "on rank 0, the fourth call of ncclAllReduce does not return"},
     .model = FaultModel::kMustEndTheRun,
     .function = "ncclAllReduce",
     .act = "hang",
     .becomes = "does not return"})};

}  // namespace
}  // namespace shardproof::faults::nccl_hang
