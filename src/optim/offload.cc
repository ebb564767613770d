#include "src/optim/offload.h"

#include <algorithm>
#include <array>
#include <memory>

#include "src/optim/elements.h"

namespace shardproof {
namespace {

constexpr uint64_t kBufferBytesMax = 4u << 20;  // of a buffer
constexpr uint64_t kElementBytesMax = sizeof(float);

/// Elements of one parameter that are staged together.
struct Piece {
  size_t parameter = 0;
  uint64_t begin = 0;
  uint64_t count = 0;
};

/// Host memory that a piece comes to and goes from. It is free when the piece has gone.
struct Buffer {
  at::Tensor bytes;
  std::unique_ptr<PendingCopy> coming;
  std::unique_ptr<PendingCopy> going;

  std::byte* data() const { return static_cast<std::byte*>(bytes.mutable_data_ptr()); }
};

void WaitFor(std::unique_ptr<PendingCopy>& copy) {
  if (copy) copy->Wait();
  copy.reset();
}

/// Takes the pieces of a step through the buffers.
class HostStepper {
 public:
  HostStepper(const std::vector<HostStep>& parameters, const Batch& batch, Optimizer& optimizer,
              Device& device)
      : parameters_(parameters),
        optimizer_(optimizer),
        device_(device),
        gradients_(batch, optimizer) {
    for (const HostStep& each : parameters) {
      scalars_.push_back(BeginStep(StateOf(each), each.settings, each.gradient_scale));
    }
  }

  Status MakeBuffers(size_t count, uint64_t bytes) {
    const std::shared_ptr<Device> host = device_.Host();
    for (size_t i = 0; i < count; ++i) {
      SP_ASSIGN(at::Tensor memory, host->Allocate({static_cast<int64_t>(bytes)}, at::kByte,
                                                  "the optimizer's staging"));
      buffers_.push_back({std::move(memory), nullptr, nullptr});
    }
    for (size_t i = 0; i < parameters_.size(); ++i) Cut(i, bytes);
    return Ok();
  }

  void Run(bool overlap) {
    if (!pieces_.empty()) Fetch(0);
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const bool has_next = i + 1 < pieces_.size();
      if (overlap && has_next) Fetch(i + 1);
      Step(i);
      if (!overlap) WaitFor(BufferOf(i).going);
      if (!overlap && has_next) Fetch(i + 1);
    }
    for (Buffer& buffer : buffers_) WaitFor(buffer.going);
  }

 private:
  const ParameterState& StateOf(const HostStep& of) const {
    return optimizer_.state.at(of.parameter->spec.name);
  }
  Slot& ParameterOf(const Piece& piece) const { return *parameters_[piece.parameter].parameter; }
  Buffer& BufferOf(size_t piece) { return buffers_[piece % buffers_.size()]; }

  void Cut(size_t parameter, uint64_t bytes) {
    const uint64_t elements = parameters_[parameter].parameter->shard.ElementCount();
    const uint64_t most = bytes / kElementBytesMax;
    for (uint64_t begin = 0; begin < elements; begin += most) {
      pieces_.push_back({parameter, begin, std::min(most, elements - begin)});
    }
  }

  /// Where a piece is in its parameter's memory. What lies there in another order is copied at
  /// once, element by element.
  static TensorStretch PlaceOf(const Slot& slot, const Piece& piece) {
    return {slot.value, piece.begin * slot.ElementBytes()};
  }

  void Fetch(size_t index) {
    const Piece& piece = pieces_[index];
    const Slot& slot = ParameterOf(piece);
    Buffer& buffer = BufferOf(index);
    WaitFor(buffer.going);
    const uint64_t bytes = piece.count * slot.ElementBytes();
    if (slot.value.is_contiguous()) {
      buffer.coming =
          device_.StartCopy(CopyStream::kToHost, {buffer.bytes, 0}, PlaceOf(slot, piece), bytes);
    } else {
      slot.CopyOut(piece.begin * slot.ElementBytes(), buffer.data(), bytes);
    }
  }

  void Step(size_t index) {
    const Piece& piece = pieces_[index];
    const HostStep& of = parameters_[piece.parameter];
    Slot& slot = ParameterOf(piece);
    Buffer& buffer = BufferOf(index);
    WaitFor(buffer.coming);
    StepElements(scalars_[piece.parameter], slot, buffer.data(), StateOf(of), piece.begin,
                 piece.count, gradients_);
    const uint64_t bytes = piece.count * slot.ElementBytes();
    if (slot.value.is_contiguous()) {
      buffer.going =
          device_.StartCopy(CopyStream::kToDevice, PlaceOf(slot, piece), {buffer.bytes, 0}, bytes);
    } else {
      slot.CopyIn(piece.begin * slot.ElementBytes(), buffer.data(), bytes);
    }
  }

  const std::vector<HostStep>& parameters_;
  Optimizer& optimizer_;
  Device& device_;
  std::vector<AdamWScalars> scalars_;  ///< by parameter
  std::vector<Piece> pieces_;
  std::vector<Buffer> buffers_;
  Gradients gradients_;
};

}  // namespace

Status StepOnHost(const std::vector<HostStep>& parameters, const Batch& batch, Optimizer& optimizer,
                  const Job& job, World& world) {
  HostStepper stepper(parameters, batch, optimizer, *world.device);
  const size_t buffers = job.training.overlap ? 2 : 1;
  uint64_t largest = 0;  // of what is staged at once, were there no bound
  for (const HostStep& each : parameters) {
    largest = std::max(largest, each.parameter->shard.ElementCount() * kElementBytesMax);
  }
  const uint64_t each = std::min({kBufferBytesMax, job.bucket_bytes / buffers, largest});
  const uint64_t whole_elements = each / kElementBytesMax * kElementBytesMax;
  SP_TRY(stepper.MakeBuffers(buffers, std::max(whole_elements, kElementBytesMax)));
  stepper.Run(job.training.overlap);
  return Ok();
}

}  // namespace shardproof
