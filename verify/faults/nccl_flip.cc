// A bit is flipped on the way to one rank.
#include "verify/faults/interposed.h"

namespace shardproof::faults::nccl_flip {
namespace {

const FaultRegistration kRegistration{MakeInterposedFault(
    {.id = "nccl/flip",
     .what = "one bit is flipped in what an NCCL collective delivers to a rank",
     .example = {"0:0",
                 "on rank 0, the first call of ncclAllReduce has the lowest bit of its result "
                 "flipped"},
     .model = FaultModel::kMustBeSeen,
     .function = "ncclAllReduce",
     .act = "flip=0",
     .becomes = "has the lowest bit of its result flipped"})};

}  // namespace
}  // namespace shardproof::faults::nccl_flip
