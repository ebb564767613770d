#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/aten/dtype.h"
#include "src/aten/torch_try.h"
#include "src/seam/device.h"

namespace shardproof {
namespace {

class HostDevice : public Device {
 public:
  Result<at::Tensor> Allocate(at::IntArrayRef shape, at::ScalarType dtype,
                              const std::string& purpose) override {
    return TorchTry(ErrorCode::kFailed,
                    fmt::format("allocating {} [{}] for {}", DtypeName(dtype),
                                fmt::join(shape.begin(), shape.end(), ", "), purpose),
                    [&] { return at::empty(shape, at::TensorOptions().dtype(dtype)); });
  }
};

class DoneCopy : public PendingCopy {
 public:
  void Wait() override {}
};

}  // namespace

std::unique_ptr<PendingCopy> Device::StartCopy(CopyStream, const TensorStretch& to,
                                               const TensorStretch& from, uint64_t bytes) {
  Copy(to.data(), from.data(), bytes);
  return std::make_unique<DoneCopy>();
}

std::shared_ptr<Device> Device::Host() { return MakeHostDevice(); }

std::shared_ptr<Device> MakeHostDevice() { return std::make_shared<HostDevice>(); }

at::Tensor MetaTensor(at::IntArrayRef shape, at::ScalarType dtype) {
  return at::empty(shape, at::TensorOptions().dtype(dtype).device(at::kMeta));
}

at::Tensor MetaTensor(at::IntArrayRef shape, at::ScalarType dtype, at::IntArrayRef strides) {
  return at::empty_strided(shape, strides, at::TensorOptions().dtype(dtype).device(at::kMeta));
}

}  // namespace shardproof
