#include "verify/faults/struck_device.h"

#include <fmt/format.h>

#include "src/seam/decorators.h"

namespace shardproof {
namespace {

class Failing : public DeviceDecorator {
 public:
  Failing(std::shared_ptr<Device> inner, std::shared_ptr<FaultPoint> point)
      : DeviceDecorator(std::move(inner)), point_(std::move(point)) {}
  Result<at::Tensor> Allocate(at::IntArrayRef shape, at::ScalarType dtype,
                              const std::string& purpose) override {
    uint64_t bytes = c10::elementSize(dtype);
    for (const int64_t size : shape) bytes *= static_cast<uint64_t>(size);
    const std::string call = fmt::format("allocating {} bytes for {}", bytes, purpose);
    const std::string error = "Cannot allocate memory";
    const std::string line = call + ": " + error;
    if (point_->Strikes({purpose, bytes}, {.detail = line, .call = call, .error = error})) {
      return Failed(line);
    }
    return inner_->Allocate(shape, dtype, purpose);
  }

 private:
  const std::shared_ptr<FaultPoint> point_;
};

}  // namespace

std::shared_ptr<Device> FailAllocations(std::shared_ptr<Device> inner,
                                        std::shared_ptr<FaultPoint> point) {
  return std::make_shared<Failing>(std::move(inner), std::move(point));
}

}  // namespace shardproof
