// What one rank computes of an optimizer step, on the host, some elements at a time: staging stays
// small whatever a tensor's size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/optim/batch.h"
#include "src/optim/optimizer.h"

namespace shardproof {

inline constexpr uint64_t kChunkElements = 1u << 16;

/// Elements [begin, begin + count) of what a slot holds, in row-major order, where the host
/// computes: the slot's own memory, or a copy if that is elsewhere or lies in another order.
class HostChunk {
 public:
  HostChunk(Slot& slot, uint64_t begin, uint64_t count);
  /// Takes back to the slot what was computed here.
  void Return() const;
  std::byte* data() const { return data_; }
  float* floats() const { return reinterpret_cast<float*>(data_); }

 private:
  Slot& slot_;
  uint64_t begin_;  ///< bytes
  uint64_t bytes_;
  std::vector<std::byte> copy_;
  std::byte* data_ = nullptr;
};

/// F32, BF16 or F16 elements as floats; and back, rounded.
void ToFloats(at::ScalarType dtype, const std::byte* elements, uint64_t count, float* floats);
void FromFloats(at::ScalarType dtype, const float* floats, uint64_t count, std::byte* elements);

/// Gradients of some elements of a parameter, which take little memory: they stay in the cache.
class Gradients {
 public:
  static constexpr uint64_t kElementsMax = 1u << 13;

  Gradients(const Batch& batch, const Optimizer& optimizer)
      : batch_(batch), stored_(optimizer.gradients) {}

  /// Those of the step: of its one micro-batch, or what several have left in memory.
  /// \param elements  the parameter's [begin, begin + count), in its dtype; at most kElementsMax.
  /// \returns them, until the next call.
  const float* Make(const Slot& parameter, const std::byte* elements, uint64_t begin,
                    uint64_t count);
  /// Those of one sample, likewise. An F16 that overflowed is infinite.
  const float* OfSample(const Slot& parameter, const std::byte* elements, int64_t sample,
                        uint64_t begin, uint64_t count);

 private:
  const Batch& batch_;
  const std::map<std::string, std::shared_ptr<Slot>>& stored_;
  std::vector<float> values_;  ///< of elements that are no floats
  std::vector<float> gradients_;
};

/// Counts a step of a parameter, and gives what all its elements share in it.
AdamWScalars BeginStep(const ParameterState& state, const AdamWSettings& settings,
                       float gradient_scale);

/// Steps the parameter's elements [begin, begin + count), which lie at `elements` in its dtype,
/// with their state and what else is kept of them.
void StepElements(const AdamWScalars& scalars, const Slot& parameter, std::byte* elements,
                  const ParameterState& state, uint64_t begin, uint64_t count,
                  Gradients& gradients);

}  // namespace shardproof
