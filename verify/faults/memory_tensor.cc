// There is no memory for a tensor, or for what tensors travel through.
#include <cerrno>

#include "src/seam/decorators.h"
#include "verify/fault/fault_descriptions.h"
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
    .in_words = CallInWords("allocation of a tensor or of what tensors travel through",
                            "fails with " + ErrnoInWords(ENOMEM)),
}};

}  // namespace
}  // namespace shardproof
