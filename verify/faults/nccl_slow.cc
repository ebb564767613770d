// A rank that others have to wait for in NCCL.
#include "verify/faults/interposed.h"

namespace shardproof::faults::nccl_slow {
namespace {

const FaultRegistration kRegistration{MakeInterposedFault(
    {.id = "nccl/slow",
     .what = "one NCCL collective starts 300 ms late on one rank",
     .example = {"0:0", "on rank 0, the first call of ncclAllReduce begins 300 ms late"},
     .model = FaultModel::kMustGoOn,
     .function = "ncclAllReduce",
     .act = "delay=300",
     .becomes = "begins 300 ms late"})};

}  // namespace
}  // namespace shardproof::faults::nccl_slow
