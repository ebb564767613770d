// There is no memory for a tensor, or for what tensors travel through.
#include <cerrno>

#include "src/seam/decorators.h"
#include "verify/fault/fault_descriptions.h"
#include "verify/faults/struck_device.h"

namespace shardproof::faults::memory_tensor {
namespace {

const FaultRegistration kRegistration{{
    .id = "memory/tensor",
    .what = "one allocation of a rank, for a tensor or for a staging buffer, fails",
    .where = kTriggerHelp,
    .example = {"what=norm.weight,rank=0",
                "on rank 0, the first allocation of a tensor or of what tensors travel through, "
                "of those with 'norm.weight' in their name, fails with ENOMEM: Cannot allocate "
                "memory"},
    .model = FaultModel::kMustAbortCleanly,
    .check = CheckTrigger,
    .arm =
        [](FaultSite site, const std::string& where) {
          site.world.device =
              FailAllocations(site.world.device, site.Point("memory/tensor", where));
        },
    .in_words = CallInWords("allocation of a tensor or of what tensors travel through",
                            "fails with " + ErrnoInWords(ENOMEM)),
    .draw = {.anywhere = FaultDraw::Anywhere::kCall, .place = 12},
}};

}  // namespace
}  // namespace shardproof::faults::memory_tensor
