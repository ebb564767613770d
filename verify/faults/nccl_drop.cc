// A rank leaves out a collective: its peers wait, or meet its next one.
#include "verify/faults/interposed.h"

namespace shardproof::faults::nccl_drop {
namespace {

const FaultRegistration kRegistration{MakeInterposedFault(
    {.id = "nccl/drop",
     .what = "one NCCL collective is skipped on one rank",
     .example = {"what=ncclBroadcast,rank=all",
                 "on every rank, the first call of ncclBroadcast is left out, and returns "
                 "success"},
     .model = FaultModel::kMustEndTheRun,
     .function = "ncclAllReduce",
     .act = "drop",
     .becomes = "is left out, and returns success"})};

}  // namespace
}  // namespace shardproof::faults::nccl_drop
