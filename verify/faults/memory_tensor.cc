// There is no memory for a tensor, or for what tensors travel through.
#include <fmt/format.h>

#include "src/seam/decorators.h"
#include "verify/faults/struck_device.h"

namespace shardproof {
namespace {

const FaultRegistration kRegistration{{
    .id = "memory/tensor",
    .what = "one allocation of a rank, of a tensor or of what tensors travel through, fails",
    .where = kTriggerHelp,
    .model = FaultModel::kMustAbortCleanly,
    .check = CheckTrigger,
    .arm =
        [](FaultSite site, const std::string& where) {
          site.world.device =
              FailAllocations(site.world.device, site.Point("memory/tensor", where));
        },
}};

}  // namespace
}  // namespace shardproof
