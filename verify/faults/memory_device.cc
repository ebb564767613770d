// A device that has less memory than the model needs.
#include <fmt/format.h>

#include <limits>

#include "src/seam/decorators.h"
#include "verify/decorators/devices.h"
#include "verify/fault/fault.h"

namespace shardproof::faults::memory_device {
namespace {

/// Puts on record what a limited device refuses.
class Refusing : public DeviceDecorator {
 public:
  Refusing(std::shared_ptr<Device> inner, FaultLog log)
      : DeviceDecorator(std::move(inner)), log_(std::move(log)) {}
  Result<at::Tensor> Allocate(at::IntArrayRef shape, at::ScalarType dtype,
                              const std::string& purpose) override {
    auto allocated = inner_->Allocate(shape, dtype, purpose);
    if (!allocated.ok()) log_({.detail = allocated.error().message});
    return allocated;
  }

 private:
  const FaultLog log_;
};

struct Target {
  uint64_t bytes = 0;
  int64_t rank = 0;
};

Result<Target> TargetOf(const Case& test_case, const std::string& where) {
  SP_ASSIGN(const auto split, SplitRank(test_case, where));
  SP_ASSIGN(const int64_t bytes,
            ParseIndex(split.what, std::numeric_limits<int64_t>::max(), "the number of bytes"));
  return Target{static_cast<uint64_t>(bytes), split.rank};
}

const FaultRegistration kRegistration{{
    .id = "memory/device",
    .what = "the device of one rank has only this many bytes of memory",
    .where = "BYTES, or BYTES:RANK (else the last rank): 4096:1",
    .example = {"4096:1", "the device of rank 1 has 4096 bytes of memory, and no more"},
    .model = FaultModel::kMustAbortCleanly,
    .check = [](const Case& test_case, const std::vector<oracle::TensorLocation>&,
                const std::string& where) -> Status {
      SP_TRY(TargetOf(test_case, where));
      return Ok();
    },
    .arm =
        [](FaultSite site, const std::string& where) {
          const Target target = TargetOf(site.test_case, where).value();
          if (site.world.rank() != target.rank) return;
          site.world.device =
              std::make_shared<Refusing>(LimitMemory(site.world.device, target.bytes), site.log);
        },
    .in_words = [](const Case& test_case, const std::string& where) -> std::string {
      const auto target = TargetOf(test_case, where);
      if (!target.ok()) return "";
      return fmt::format("the device of rank {} has {} bytes of memory, and no more",
                         target.value().rank, target.value().bytes);
    },
    .on_any_device = true,
    .tried_at = {"0:0", "0:1", "16:0", "16:1", "40:0", "40:1"},
}};

}  // namespace
}  // namespace shardproof::faults::memory_device
