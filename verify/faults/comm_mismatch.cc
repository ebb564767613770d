// A rank makes another collective than the others.
#include <vector>

#include "verify/faults/wrong_collective.h"

namespace shardproof::faults::comm_mismatch {
namespace {

const FaultRegistration kRegistration{OtherwiseFault(
    {.id = "comm/mismatch",
     .what = "a rank issues a different collective from the others: a sum of 1001 numbers",
     .example = {"0:0",
                 "on rank 0, the first collective is another one there, a sum of 1001 numbers"},
     .verb = "a sum of 1001 numbers instead of",
     .becomes = "is another one there, a sum of 1001 numbers",
     .instead = [](Communicator& communicator) -> Status {
       SP_TRY(communicator.Sum(std::vector<int64_t>(1001), "another collective"));
       return Ok();
     },
     .draw = {.anywhere = FaultDraw::Anywhere::kCall,
              .needs_others = true,
              .only_simulated = true,
              .place = 15}})};

}  // namespace
}  // namespace shardproof::faults::comm_mismatch
