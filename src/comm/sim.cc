#include "src/comm/sim.h"

#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "src/aten/dtype.h"
#include "src/comm/describe.h"
#include "src/comm/gloo.h"
#include "src/seam/decorators.h"

namespace shardproof {
namespace {

constexpr size_t kRanksNamedMax = 8;

std::string ReductionName(const c10d::ReduceOp& op) {
  switch (op) {
    case c10d::ReduceOp::MAX:
      return "MAX";
    case c10d::ReduceOp::MIN:
      return "MIN";
    case c10d::ReduceOp::SUM:
      return "SUM";
    default:
      break;
  }
  C10_THROW_ERROR(NotImplementedError, "the simulated transport reduces by SUM, MAX and MIN only");
}

void CopyPayload(const at::Tensor& to, const at::Tensor& from) {
  if (to.is_meta() || from.is_meta() || to.is_same(from)) return;
  to.copy_(from);
}

std::string RankList(const std::vector<int64_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kRanksNamedMax); ++i) {
    text += (i ? ", " : "") + std::to_string(ranks[i]);
  }
  if (ranks.size() > kRanksNamedMax) {
    text += fmt::format(" and {} more", ranks.size() - kRanksNamedMax);
  }
  return text;
}

}  // namespace

class SimWork : public c10d::Work {
 public:
  SimWork(SimWorld& world, int64_t rank, int64_t number, std::vector<at::Tensor> outputs)
      : c10d::Work(static_cast<int>(rank)),
        world_(world),
        rank_(rank),
        number_(number),
        outputs_(std::move(outputs)) {}
  bool wait(std::chrono::milliseconds) override {
    world_.Await(rank_, number_);
    return true;
  }
  bool isCompleted() override { return world_.HasArrived(rank_, number_); }
  bool isSuccess() const override { return world_.HasArrived(rank_, number_); }
  void synchronize() override { world_.Await(rank_, number_); }
  std::vector<at::Tensor> result() override { return outputs_; }

 private:
  SimWorld& world_;
  int64_t rank_;
  int64_t number_;
  std::vector<at::Tensor> outputs_;
};

class SimBackend : public c10d::Backend {
 public:
  SimBackend(SimWorld& world, int64_t rank)
      : c10d::Backend(static_cast<int>(rank), static_cast<int>(world.world_size_)), world_(world) {}
  const std::string getBackendName() const override { return "sim"; }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    return Start({.op = "broadcast", .root = options.rootRank, .payload = tensors.at(0)});
  }
  c10::intrusive_ptr<c10d::Work> scatter(std::vector<at::Tensor>& outputs,
                                         std::vector<std::vector<at::Tensor>>& inputs,
                                         const c10d::ScatterOptions& options) override {
    SimWorld::Request request{.op = "scatter", .root = options.rootRank, .payload = outputs.at(0)};
    if (getRank() == options.rootRank) request.leaves = inputs.at(0);
    return Start(std::move(request));
  }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    return Start({.op = "allreduce",
                  .reduction = ReductionName(options.reduceOp),
                  .payload = tensors.at(0)});
  }

 private:
  c10::intrusive_ptr<c10d::Work> Start(SimWorld::Request request) {
    std::vector<at::Tensor> outputs = {request.payload};
    const int64_t number = world_.Post(getRank(), std::move(request));
    return c10::make_intrusive<SimWork>(world_, getRank(), number, std::move(outputs));
  }

  SimWorld& world_;
};

/// Tells the world which tensors the next operation carries, which c10d has no place for.
class SimCommunicator : public CommunicatorDecorator {
 public:
  SimCommunicator(SimWorld& world, int64_t rank)
      : CommunicatorDecorator(MakeCommunicator(world.BackendOf(rank), world.MakeClock())),
        announced_(world.announced_[rank]) {}

  Result<std::unique_ptr<Pending>> Broadcast(at::Tensor payload, int64_t root,
                                             std::vector<Piece> pieces) override {
    announced_.clear();
    for (const Piece& piece : pieces) announced_.push_back(piece.tensor);
    return inner_->Broadcast(std::move(payload), root, std::move(pieces));
  }
  Result<std::unique_ptr<Pending>> Scatter(at::Tensor payload, std::vector<at::Tensor> payloads,
                                           int64_t root,
                                           std::vector<std::string> tensors) override {
    announced_ = tensors;
    return inner_->Scatter(std::move(payload), std::move(payloads), root, std::move(tensors));
  }
  Result<int64_t> Max(int64_t value, const std::string& what) override {
    announced_ = {what};
    return inner_->Max(value, what);
  }
  Result<std::vector<int64_t>> Sum(std::vector<int64_t> values, const std::string& what) override {
    announced_ = {what};
    return inner_->Sum(std::move(values), what);
  }

 private:
  std::vector<std::string>& announced_;
};

namespace {

class SimClock : public Clock {
 public:
  explicit SimClock(const SimScheduler& scheduler) : scheduler_(scheduler) {}
  std::chrono::steady_clock::time_point Now() override {
    return std::chrono::steady_clock::time_point(
        std::chrono::microseconds(static_cast<int64_t>(scheduler_.steps())));
  }

 private:
  const SimScheduler& scheduler_;
};

}  // namespace

SimWorld::SimWorld(int64_t world_size, uint64_t seed)
    : world_size_(world_size),
      scheduler_(world_size, seed),
      posted_(world_size, 0),
      waits_for_(world_size, -1),
      announced_(world_size) {}

void SimWorld::Run(const std::function<void(int64_t rank)>& be_rank) {
  scheduler_.Run(be_rank, [this] { Fail("deadlock: " + WhoWaits()); });
}

c10::intrusive_ptr<c10d::Backend> SimWorld::BackendOf(int64_t rank) {
  return c10::make_intrusive<SimBackend>(*this, rank);
}

std::shared_ptr<Communicator> SimWorld::CommunicatorOf(int64_t rank) {
  return std::make_shared<SimCommunicator>(*this, rank);
}

std::shared_ptr<Clock> SimWorld::MakeClock() const {
  return std::make_shared<SimClock>(scheduler_);
}

int64_t SimWorld::Post(int64_t rank, Request request) {
  request.tensors = std::exchange(announced_[rank], {});
  const int64_t number = posted_[rank]++;
  if (failure_.empty()) {
    Operation& operation = operations_[number];
    Match(number, operation, rank, request);
    operation.requests.emplace(rank, std::move(request));
    if (failure_.empty()) OfferTransfers(number, rank);
  }
  scheduler_.Yield();
  if (!failure_.empty()) C10_THROW_ERROR(DistBackendError, failure_);
  return number;
}

std::string SimWorld::Described(int64_t number, const Request& request) const {
  std::string text = fmt::format("{} {}", request.op, number);
  if (request.root >= 0) text += fmt::format(" from rank {}", request.root);
  if (!request.reduction.empty()) text += " " + request.reduction;
  text +=
      fmt::format(" of {} {}", request.payload.numel(), DtypeName(request.payload.scalar_type()));
  return request.tensors.empty() ? text : fmt::format("{} ({})", text, Contents(request.tensors));
}

void SimWorld::Match(int64_t number, const Operation& operation, int64_t rank,
                     const Request& request) {
  if (operation.requests.empty()) return;
  const auto& [other_rank, other] = *operation.requests.begin();
  const auto differs = [&](const char* how) {
    return fmt::format("collectives differ in {}: {} on rank {}, {} on rank {}", how,
                       Described(number, other), other_rank, Described(number, request), rank);
  };
  if (other.op != request.op || other.reduction != request.reduction)
    Fail(differs("order"));
  else if (other.root != request.root)
    Fail(differs("root"));
  else if (other.payload.scalar_type() != request.payload.scalar_type())
    Fail(differs("dtype"));
  else if (other.payload.numel() != request.payload.numel())
    Fail(differs("shape"));
  else if (other.tensors != request.tensors)
    other_tensors_.push_back(differs("tensors"));
}

void SimWorld::OfferTransfers(int64_t number, int64_t rank) {
  const Operation& operation = operations_.at(number);
  const Request& request = operation.requests.at(rank);
  if (request.op == "allreduce") {
    if (static_cast<int64_t>(operation.requests.size()) < world_size_) return;
    for (int64_t to = 0; to < world_size_; ++to) {
      scheduler_.Offer([this, number, to] { Reduce(number, to); });
    }
    return;
  }
  // What root sends can travel to a rank as soon as both have come, whoever else has.
  const auto offer = [this, number](int64_t to) {
    scheduler_.Offer([this, number, to] { Transfer(number, to); });
  };
  if (rank != request.root) {
    if (operation.requests.contains(request.root)) offer(rank);
    return;
  }
  for (const auto& [to, posted] : operation.requests) offer(to);
}

void SimWorld::Transfer(int64_t number, int64_t to) {
  Operation& operation = operations_.at(number);
  Request& receiver = operation.requests.at(to);
  if (lost_.contains(to) || lost_.contains(receiver.root)) return;
  const Request& sender = operation.requests.at(receiver.root);
  CopyPayload(receiver.payload, sender.leaves.empty() ? sender.payload : sender.leaves.at(to));
  ++operation.sent;
  const int64_t root = receiver.root;
  const bool all_sent = operation.sent == world_size_;
  if (to != root) Arrive(number, to);
  // Root's part is done when nobody needs its payload any more.
  if (all_sent) Arrive(number, root);
}

void SimWorld::Reduce(int64_t number, int64_t to) {
  if (lost_.contains(to)) return;
  Operation& operation = operations_.at(number);
  if (!operation.reduced.defined()) {
    for (const auto& [rank, request] : operation.requests) {
      if (!operation.reduced.defined())
        operation.reduced = request.payload.clone();
      else if (request.payload.is_meta())
        continue;
      else if (request.reduction == "SUM")
        operation.reduced.add_(request.payload);
      else if (request.reduction == "MAX")
        operation.reduced = at::maximum(operation.reduced, request.payload);
      else
        operation.reduced = at::minimum(operation.reduced, request.payload);
    }
  }
  CopyPayload(operation.requests.at(to).payload, operation.reduced);
  Arrive(number, to);
}

void SimWorld::Arrive(int64_t number, int64_t rank) {
  Operation& operation = operations_.at(number);
  operation.arrived.insert(rank);
  if (waits_for_[rank] == number) scheduler_.Wake(rank);
  if (static_cast<int64_t>(operation.arrived.size()) == world_size_) operations_.erase(number);
}

bool SimWorld::HasArrived(int64_t rank, int64_t number) const {
  const auto operation = operations_.find(number);
  // An operation that is gone is done on every rank.
  return operation == operations_.end() || operation->second.arrived.contains(rank);
}

void SimWorld::Await(int64_t rank, int64_t number) {
  scheduler_.Yield();
  while (failure_.empty() && !HasArrived(rank, number)) {
    waits_for_[rank] = number;
    scheduler_.Block();
    waits_for_[rank] = -1;
  }
  if (!HasArrived(rank, number)) C10_THROW_ERROR(DistBackendError, failure_);
}

void SimWorld::Fail(std::string text) {
  if (failure_.empty()) failure_ = std::move(text);
  scheduler_.DropEvents();
  for (int64_t rank = 0; rank < world_size_; ++rank) scheduler_.Wake(rank);
}

std::string SimWorld::WhoWaits() const {
  std::map<std::pair<std::string, bool>, std::vector<int64_t>> alike;  // what, and if it waits
  for (int64_t rank = 0; rank < world_size_; ++rank) {
    if (waits_for_[rank] >= 0) {
      const int64_t number = waits_for_[rank];
      const Operation& operation = operations_.at(number);
      const std::string what = fmt::format("in {}, to which {} of {} ranks have come",
                                           Described(number, operation.requests.at(rank)),
                                           operation.requests.size(), world_size_);
      alike[{what, true}].push_back(rank);
    } else {
      alike[{fmt::format("(after {} operations)", posted_[rank]), false}].push_back(rank);
    }
  }
  std::string text;
  for (const auto& [key, ranks] : alike) {
    const auto& [what, waits] = key;
    const char* verb = waits ? (ranks.size() == 1 ? "waits" : "wait")
                             : (ranks.size() == 1 ? "has ended" : "have ended");
    text += fmt::format("{}{} {} {}", text.empty() ? "" : "; ", RankList(ranks), verb, what);
  }
  return text;
}

}  // namespace shardproof
