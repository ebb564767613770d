#include "verify/decorators/late_copies.h"

#include <array>
#include <deque>
#include <utility>

#include "src/comm/sim_scheduler.h"
#include "src/seam/decorators.h"

namespace shardproof {
namespace {

/// What is under way. Outlives the device, as what waits for it may.
class Streams {
 public:
  Streams(std::shared_ptr<Device> device, CopyTiming timing, uint64_t seed)
      : device_(std::move(device)), timing_(timing), random_(seed) {}

  int64_t Add(CopyStream stream, TensorStretch to, TensorStretch from, uint64_t bytes) {
    Queue& queue = QueueOf(stream);
    queue.copies.push_back({std::move(to), std::move(from), bytes});
    return queue.first + static_cast<int64_t>(queue.copies.size()) - 1;
  }

  /// Has every copy of the stream done up to this one.
  void Finish(CopyStream stream, int64_t number) {
    Queue& queue = QueueOf(stream);
    while (queue.first <= number) HappenFirst(queue);
  }

  /// A moment at which copies may happen.
  void Pass() {
    if (timing_ == CopyTiming::kWhenWaited) return;
    for (;;) {
      Queue& queue = queues_[random_.Below(queues_.size())];
      if (queue.copies.empty() || random_.Below(2) == 0) return;
      HappenFirst(queue);
    }
  }

 private:
  struct Copy {
    TensorStretch to;
    TensorStretch from;
    uint64_t bytes = 0;
  };
  struct Queue {
    std::deque<Copy> copies;
    int64_t first = 0;  ///< the number of the first of them
  };

  Queue& QueueOf(CopyStream stream) { return queues_[static_cast<size_t>(stream)]; }

  void HappenFirst(Queue& queue) {
    const Copy copy = std::move(queue.copies.front());
    queue.copies.pop_front();
    ++queue.first;
    device_->Copy(copy.to.data(), copy.from.data(), copy.bytes);
  }

  std::shared_ptr<Device> device_;
  CopyTiming timing_;
  SimRandom random_;
  std::array<Queue, 2> queues_;
};

class LateCopy : public PendingCopy {
 public:
  LateCopy(std::shared_ptr<Streams> streams, CopyStream stream, int64_t number)
      : streams_(std::move(streams)), stream_(stream), number_(number) {}
  void Wait() override { streams_->Finish(stream_, number_); }

 private:
  std::shared_ptr<Streams> streams_;
  CopyStream stream_;
  int64_t number_;
};

class LateDevice : public DeviceDecorator {
 public:
  LateDevice(std::shared_ptr<Device> inner, CopyTiming timing, uint64_t seed)
      : DeviceDecorator(inner), streams_(std::make_shared<Streams>(inner, timing, seed)) {}
  Result<at::Tensor> Allocate(at::IntArrayRef shape, at::ScalarType dtype,
                              const std::string& purpose) override {
    streams_->Pass();
    return inner_->Allocate(shape, dtype, purpose);
  }
  void Copy(void* to, const void* from, uint64_t bytes) override {
    streams_->Pass();
    inner_->Copy(to, from, bytes);
  }
  std::unique_ptr<PendingCopy> StartCopy(CopyStream stream, const TensorStretch& to,
                                         const TensorStretch& from, uint64_t bytes) override {
    const int64_t number = streams_->Add(stream, to, from, bytes);
    streams_->Pass();
    return std::make_unique<LateCopy>(streams_, stream, number);
  }

 private:
  std::shared_ptr<Streams> streams_;
};

}  // namespace

std::shared_ptr<Device> DelayCopies(std::shared_ptr<Device> inner, CopyTiming timing,
                                    uint64_t seed) {
  return std::make_shared<LateDevice>(std::move(inner), timing, seed);
}

}  // namespace shardproof
