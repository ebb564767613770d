#include "verify/decorators/devices.h"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "src/seam/decorators.h"

namespace shardproof {
namespace {

constexpr uint64_t kPoisonBytes = 1 << 20;  // at a time, where only copies reach

class PoisonDevice : public DeviceDecorator {
 public:
  using DeviceDecorator::DeviceDecorator;
  Result<at::Tensor> Allocate(at::IntArrayRef shape, at::ScalarType dtype,
                              const std::string& purpose) override {
    SP_ASSIGN(at::Tensor tensor, inner_->Allocate(shape, dtype, purpose));
    auto* data = static_cast<std::byte*>(tensor.nbytes() > 0 ? tensor.mutable_data_ptr() : nullptr);
    if (inner_->IsHost()) {
      if (data != nullptr) std::memset(data, 0xff, tensor.nbytes());
      return tensor;
    }
    const std::vector<std::byte> poison(std::min<uint64_t>(kPoisonBytes, tensor.nbytes()),
                                        std::byte{0xff});
    for (uint64_t done = 0; done < tensor.nbytes(); done += poison.size()) {
      inner_->Copy(data + done, poison.data(),
                   std::min<uint64_t>(poison.size(), tensor.nbytes() - done));
    }
    return tensor;
  }
  std::shared_ptr<Device> Host() override { return PoisonFresh(inner_->Host()); }
};

class WatchedDevice : public DeviceDecorator {
 public:
  WatchedDevice(std::shared_ptr<Device> inner, std::function<void()> before_release)
      : DeviceDecorator(std::move(inner)), before_release_(std::move(before_release)) {}
  Result<at::Tensor> Allocate(at::IntArrayRef shape, at::ScalarType dtype,
                              const std::string& purpose) override {
    SP_ASSIGN(at::Tensor tensor, inner_->Allocate(shape, dtype, purpose));
    if (!inner_->IsHost()) return tensor;  // none of it is the host's, whose peaks are watched
    const auto release = [tensor, call = before_release_](void*) mutable {
      call();
      tensor.reset();
    };
    return at::from_blob(tensor.mutable_data_ptr(), tensor.sizes(), release, tensor.options());
  }
  std::shared_ptr<Device> Host() override { return WatchReleases(inner_->Host(), before_release_); }

 private:
  std::function<void()> before_release_;
};

class LimitedDevice : public DeviceDecorator {
 public:
  LimitedDevice(std::shared_ptr<Device> inner, uint64_t bytes)
      : DeviceDecorator(std::move(inner)), limit_(bytes) {}
  Result<at::Tensor> Allocate(at::IntArrayRef shape, at::ScalarType dtype,
                              const std::string& purpose) override {
    uint64_t bytes = c10::elementSize(dtype);
    for (const int64_t size : shape) bytes *= static_cast<uint64_t>(size);
    if (bytes > limit_ - *in_use_) {
      return Failed(
          fmt::format("allocating {} bytes for {}: {} of the device's {} bytes are in use", bytes,
                      purpose, *in_use_, limit_));
    }
    SP_ASSIGN(at::Tensor tensor, inner_->Allocate(shape, dtype, purpose));
    if (bytes == 0) return tensor;
    *in_use_ += bytes;
    const auto release = [tensor, bytes, in_use = in_use_](void*) mutable {
      *in_use -= bytes;
      tensor.reset();
    };
    return at::from_blob(tensor.mutable_data_ptr(), tensor.sizes(), release, tensor.options());
  }

 private:
  const uint64_t limit_;
  std::shared_ptr<uint64_t> in_use_ =
      std::make_shared<uint64_t>(0);  // tensors may outlive the device
};

}  // namespace

std::shared_ptr<Device> PoisonFresh(std::shared_ptr<Device> inner) {
  return std::make_shared<PoisonDevice>(std::move(inner));
}

std::shared_ptr<Device> WatchReleases(std::shared_ptr<Device> inner,
                                      std::function<void()> before_release) {
  return std::make_shared<WatchedDevice>(std::move(inner), std::move(before_release));
}

std::shared_ptr<Device> LimitMemory(std::shared_ptr<Device> inner, uint64_t bytes) {
  return std::make_shared<LimitedDevice>(std::move(inner), bytes);
}

}  // namespace shardproof
