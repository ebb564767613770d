// A rank leaves out a collective.
#include "verify/faults/wrong_collective.h"

namespace shardproof::faults::comm_drop {
namespace {

const FaultRegistration kRegistration{
    OtherwiseFault({.id = "comm/drop",
                    .what = "a rank leaves out one collective",
                    .example = {"2:1", "on rank 1, the third collective is left out"},
                    .verb = "left out:",
                    .becomes = "is left out",
                    .instead = [](Communicator&) { return Ok(); },
                    .draw = {.anywhere = FaultDraw::Anywhere::kCall,
                             .needs_others = true,
                             .only_simulated = true,
                             .place = 14}})};

}  // namespace
}  // namespace shardproof::faults::comm_drop
