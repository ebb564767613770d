// Pinned memory is used up.
#include <cerrno>

#include "src/seam/decorators.h"
#include "verify/fault/fault_descriptions.h"
#include "verify/faults/struck_device.h"

namespace shardproof::faults::memory_pinned {
namespace {

/// A device whose host memory is struck.
class PinnedStruck : public DeviceDecorator {
 public:
  PinnedStruck(std::shared_ptr<Device> inner, std::shared_ptr<FaultPoint> point)
      : DeviceDecorator(std::move(inner)), point_(std::move(point)) {}
  std::shared_ptr<Device> Host() override { return FailAllocations(inner_->Host(), point_); }

 private:
  const std::shared_ptr<FaultPoint> point_;
};

const FaultRegistration kRegistration{{
    .id = "memory/pinned",
    .what = "a rank gets no more pinned host memory from its n-th such allocation on",
    .where = kTriggerHelp,
    .example = {"3:0",
                "on rank 0, the fourth allocation of the host's memory that side streams reach "
                "and all after it fail with ENOMEM: Cannot allocate memory"},
    .model = FaultModel::kMustAbortCleanly,
    .check = CheckTrigger,
    .arm =
        [](FaultSite site, const std::string& where) {
          site.world.device = std::make_shared<PinnedStruck>(
              site.world.device, site.Point("memory/pinned", where, true));
        },
    .in_words = CallInWords("allocation of the host's memory that side streams reach",
                            "fail with " + ErrnoInWords(ENOMEM), true),
    .draw = {.anywhere = FaultDraw::Anywhere::kCall, .place = 13},
}};

}  // namespace
}  // namespace shardproof::faults::memory_pinned
