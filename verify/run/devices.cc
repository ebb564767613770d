#include "verify/run/devices.h"

#include <cstring>

#include <ATen/ops/from_blob.h>

namespace shardproof {
namespace {

class PoisonDevice : public Device {
 public:
  explicit PoisonDevice(std::shared_ptr<Device> inner) : inner_(std::move(inner)) {}
  Result<at::Tensor> Allocate(at::IntArrayRef shape, at::ScalarType dtype,
                              const std::string& purpose) override {
    SP_ASSIGN(at::Tensor tensor, inner_->Allocate(shape, dtype, purpose));
    if (tensor.nbytes() > 0) std::memset(tensor.mutable_data_ptr(), 0xff, tensor.nbytes());
    return tensor;
  }

 private:
  std::shared_ptr<Device> inner_;
};

class WatchedDevice : public Device {
 public:
  WatchedDevice(std::shared_ptr<Device> inner, std::function<void()> before_release)
      : inner_(std::move(inner)), before_release_(std::move(before_release)) {}
  Result<at::Tensor> Allocate(at::IntArrayRef shape, at::ScalarType dtype,
                              const std::string& purpose) override {
    SP_ASSIGN(at::Tensor tensor, inner_->Allocate(shape, dtype, purpose));
    const auto release = [tensor, call = before_release_](void*) mutable {
      call();
      tensor.reset();
    };
    return at::from_blob(tensor.mutable_data_ptr(), tensor.sizes(), release, tensor.options());
  }

 private:
  std::shared_ptr<Device> inner_;
  std::function<void()> before_release_;
};

}  // namespace

std::shared_ptr<Device> PoisonFresh(std::shared_ptr<Device> inner) {
  return std::make_shared<PoisonDevice>(std::move(inner));
}

std::shared_ptr<Device> WatchReleases(std::shared_ptr<Device> inner,
                                      std::function<void()> before_release) {
  return std::make_shared<WatchedDevice>(std::move(inner), std::move(before_release));
}

}  // namespace shardproof
