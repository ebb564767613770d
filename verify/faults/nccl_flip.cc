// A bit is flipped on the way to one rank.
#include "verify/faults/interposed.h"

namespace shardproof {
namespace {

const FaultRegistration kRegistration{
    MakeInterposedFault({.id = "nccl/flip",
                         .what = "one bit is flipped in what an NCCL collective delivers to a rank",
                         .model = FaultModel::kMustBeSeen,
                         .function = "ncclAllReduce",
                         .act = "flip=0",
                         .becomes = "has the lowest bit of its result flipped"})};

}  // namespace
}  // namespace shardproof
