// A rank that others have to wait for in NCCL.
#include "verify/faults/interposed.h"

namespace shardproof {
namespace {

const FaultRegistration kRegistration{
    MakeInterposedFault({.id = "nccl/slow",
                         .what = "one NCCL collective starts 300 ms late on one rank",
                         .model = FaultModel::kMustGoOn,
                         .function = "ncclAllReduce",
                         .act = "delay=300",
                         .becomes = "begins 300 ms late"})};

}  // namespace
}  // namespace shardproof
