// The pipeline's collectives on a c10d backend.
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "src/comm/describe.h"
#include "src/comm/gloo.h"
#include "src/core/torch_try.h"

namespace shardproof {
namespace {

/// Gloo's text without its source position and its advice.
std::string Essence(std::string text) {
  text = text.substr(0, text.find(". This is typically"));
  const size_t position = text.find("[/");
  const size_t end = text.find("] ", position);
  if (position != std::string::npos && end != std::string::npos) {
    text.erase(position, end + 2 - position);
  }
  return text;
}

class PendingWork : public Pending {
 public:
  PendingWork(c10::intrusive_ptr<c10d::Work> work, at::Tensor payload, std::string what,
              std::shared_ptr<Clock> clock)
      : work_(std::move(work)),
        payload_(std::move(payload)),
        what_(std::move(what)),
        clock_(std::move(clock)) {}

  Result<at::Tensor> Wait() override {
    const auto begin = clock_->Now();
    auto done = TorchTry(ErrorCode::kPeer, what_, [&] { return work_->wait(); });
    if (done.ok()) return payload_;
    const auto waited =
        std::chrono::duration_cast<std::chrono::milliseconds>(clock_->Now() - begin).count();
    return PeerFailed(fmt::format("{} (after {} ms)", Essence(done.error().message), waited));
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  at::Tensor payload_;
  std::string what_;
  std::shared_ptr<Clock> clock_;
};

class BackendCommunicator : public Communicator {
 public:
  BackendCommunicator(c10::intrusive_ptr<c10d::Backend> backend, std::shared_ptr<Clock> clock,
                      at::Device device)
      : backend_(std::move(backend)), clock_(std::move(clock)), device_(device) {}

  int64_t rank() const override { return backend_->getRank(); }
  int64_t world_size() const override { return backend_->getSize(); }

  Result<std::unique_ptr<Pending>> Broadcast(at::Tensor payload, int64_t root,
                                             std::vector<Piece> pieces) override {
    const std::string what = BroadcastText(root, pieces);
    SP_ASSIGN(auto work, TorchTry(ErrorCode::kPeer, what, [&] {
                std::vector<at::Tensor> tensors = {payload};
                c10d::BroadcastOptions options;
                options.rootRank = root;
                return backend_->broadcast(tensors, options);
              }));
    return std::unique_ptr<Pending>(
        std::make_unique<PendingWork>(std::move(work), std::move(payload), what, clock_));
  }

  Result<std::unique_ptr<Pending>> Scatter(at::Tensor payload, std::vector<at::Tensor> payloads,
                                           int64_t root,
                                           std::vector<std::string> tensors) override {
    const std::string what = ScatterText(root, tensors);
    SP_ASSIGN(auto work, TorchTry(ErrorCode::kPeer, what, [&] {
                std::vector<at::Tensor> outputs = {payload};
                std::vector<std::vector<at::Tensor>> inputs;
                if (!payloads.empty()) inputs.push_back(std::move(payloads));
                c10d::ScatterOptions options;
                options.rootRank = root;
                return backend_->scatter(outputs, inputs, options);
              }));
    return std::unique_ptr<Pending>(
        std::make_unique<PendingWork>(std::move(work), std::move(payload), what, clock_));
  }

  Result<int64_t> Max(int64_t value, const std::string& what) override {
    SP_ASSIGN(const auto most, Reduce({value}, c10d::ReduceOp::MAX, what));
    return most.front();
  }

  Result<std::vector<int64_t>> Sum(std::vector<int64_t> values, const std::string& what) override {
    return Reduce(std::move(values), c10d::ReduceOp::SUM, what);
  }

 private:
  Result<std::vector<int64_t>> Reduce(std::vector<int64_t> values, c10d::ReduceOp::RedOpType how,
                                      const std::string& what) {
    const auto count = static_cast<int64_t>(values.size());
    at::Tensor tensor = at::from_blob(values.data(), {count}, at::kLong)
                            .to(device_, at::kLong, false, /*copy=*/true);
    SP_ASSIGN(auto work, TorchTry(ErrorCode::kPeer, what, [&] {
                std::vector<at::Tensor> tensors = {tensor};
                c10d::AllreduceOptions options;
                options.reduceOp = how;
                return backend_->allreduce(tensors, options);
              }));
    SP_TRY(PendingWork(std::move(work), tensor, what, clock_).Wait());
    at::from_blob(values.data(), {count}, at::kLong).copy_(tensor);
    return values;
  }

  c10::intrusive_ptr<c10d::Backend> backend_;
  std::shared_ptr<Clock> clock_;
  at::Device device_;
};

}  // namespace

std::shared_ptr<Communicator> MakeCommunicator(c10::intrusive_ptr<c10d::Backend> backend,
                                               std::shared_ptr<Clock> clock, at::Device device) {
  return std::make_shared<BackendCommunicator>(std::move(backend), std::move(clock), device);
}

}  // namespace shardproof
