// A bit is flipped between host and device.
#include "verify/faults/interposed.h"

namespace shardproof::faults::cuda_flip {
namespace {

const FaultRegistration kRegistration{MakeInterposedFault(
    {.id = "cuda/flip",
     .what = "one bit is flipped in a copy to or from a device",
     .example = {"0:0",
                 "on rank 0, the first call of cudaMemcpyAsync has the lowest bit of its result "
                 "flipped"},
     .model = FaultModel::kMustBeSeen,
     .function = "cudaMemcpyAsync",
     .act = "flip=0",
     .becomes = "has the lowest bit of its result flipped"})};

}  // namespace
}  // namespace shardproof::faults::cuda_flip
