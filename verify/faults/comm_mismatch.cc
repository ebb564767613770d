// A rank makes another collective than the others.
#include <vector>

#include "verify/faults/wrong_collective.h"

namespace shardproof {
namespace {

const FaultRegistration kRegistration{OtherwiseFault(
    "comm/mismatch", "a rank makes another collective than the others: a sum of 1001 numbers",
    "a sum of 1001 numbers instead of", "is another one there, a sum of 1001 numbers",
    [](Communicator& communicator) -> Status {
      SP_TRY(communicator.Sum(std::vector<int64_t>(1001), "another collective"));
      return Ok();
    })};

}  // namespace
}  // namespace shardproof
