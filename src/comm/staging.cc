#include "src/comm/staging.h"

#include <ATen/ops/empty.h>

#include "src/comm/describe.h"
#include "src/seam/decorators.h"

namespace shardproof {
namespace {

/// Waits, and brings what arrived to where it was to be.
class PendingStaged : public Pending {
 public:
  PendingStaged(std::unique_ptr<Pending> inner, at::Tensor payload, std::vector<at::Tensor> staged,
                bool arrives, Device& device)
      : inner_(std::move(inner)),
        payload_(std::move(payload)),
        staged_(std::move(staged)),
        arrives_(arrives),
        device_(device) {}

  Result<at::Tensor> Wait() override {
    SP_ASSIGN(const at::Tensor arrived, inner_->Wait());
    if (arrives_ && payload_.nbytes() > 0) {
      device_.Copy(payload_.mutable_data_ptr(), arrived.const_data_ptr(), payload_.nbytes());
    }
    staged_.clear();
    return payload_;
  }

 private:
  std::unique_ptr<Pending> inner_;
  at::Tensor payload_;
  std::vector<at::Tensor> staged_;  // must live while it travels
  bool arrives_;
  Device& device_;
};

class StagedCommunicator : public CommunicatorDecorator {
 public:
  StagedCommunicator(std::shared_ptr<Communicator> inner, Device& device, bool takes_device)
      : CommunicatorDecorator(std::move(inner)), device_(device), takes_device_(takes_device) {}

  Result<std::unique_ptr<Pending>> Broadcast(at::Tensor payload, int64_t root,
                                             std::vector<Piece> pieces) override {
    if (Takes(payload)) return inner_->Broadcast(std::move(payload), root, std::move(pieces));
    const bool is_root = rank() == root;
    SP_ASSIGN(at::Tensor staged, Stage(payload, is_root, Contents(NamesOf(pieces))));
    SP_ASSIGN(auto pending, inner_->Broadcast(staged, root, std::move(pieces)));
    return Staged(std::move(pending), std::move(payload), {std::move(staged)}, !is_root);
  }

  Result<std::unique_ptr<Pending>> Scatter(at::Tensor payload, std::vector<at::Tensor> payloads,
                                           int64_t root,
                                           std::vector<std::string> tensors) override {
    std::vector<at::Tensor> staged;
    for (at::Tensor& each : payloads) {
      if (Takes(each)) continue;
      SP_ASSIGN(each, Stage(each, true, Contents(tensors)));
      staged.push_back(each);
    }
    at::Tensor own = payload;
    if (!Takes(payload)) {
      SP_ASSIGN(own, Stage(payload, false, Contents(tensors)));
      staged.push_back(own);
    }
    const bool arrives = !own.is_same(payload);
    SP_ASSIGN(auto pending,
              inner_->Scatter(std::move(own), std::move(payloads), root, std::move(tensors)));
    return Staged(std::move(pending), std::move(payload), std::move(staged), arrives);
  }

 private:
  bool Takes(const at::Tensor& tensor) const { return device_.Holds(tensor) == takes_device_; }

  /// Memory that the transport takes, with the payload's bytes if they are to leave from here.
  Result<at::Tensor> Stage(const at::Tensor& payload, bool filled, const std::string& contents) {
    at::Tensor staged;
    if (takes_device_) {
      SP_ASSIGN(staged, device_.Allocate(payload.sizes(), at::kByte, "the bucket of " + contents));
    } else {
      staged = at::empty(payload.sizes(), at::kByte);
    }
    if (filled && payload.nbytes() > 0) {
      device_.Copy(staged.mutable_data_ptr(), payload.const_data_ptr(), payload.nbytes());
    }
    return staged;
  }

  Result<std::unique_ptr<Pending>> Staged(std::unique_ptr<Pending> pending, at::Tensor payload,
                                          std::vector<at::Tensor> staged, bool arrives) {
    return std::unique_ptr<Pending>(std::make_unique<PendingStaged>(
        std::move(pending), std::move(payload), std::move(staged), arrives, device_));
  }

  Device& device_;
  bool takes_device_;
};

}  // namespace

std::shared_ptr<Communicator> StageThrough(std::shared_ptr<Communicator> inner, Device& device,
                                           bool takes_device) {
  return std::make_shared<StagedCommunicator>(std::move(inner), device, takes_device);
}

}  // namespace shardproof
