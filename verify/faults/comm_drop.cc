// A rank leaves out a collective.
#include "verify/faults/wrong_collective.h"

namespace shardproof {
namespace {

const FaultRegistration kRegistration{
    OtherwiseFault("comm/drop", "a rank leaves out one collective", "left out:", "is left out",
                   [](Communicator&) { return Ok(); })};

}  // namespace
}  // namespace shardproof
