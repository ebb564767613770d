// The seam to memory. Every tensor and staging buffer of the pipeline is allocated here, so poison,
// budgets and failing allocations are decorators; and every byte that goes into one or comes out of it
// is copied here, so that memory may be where the host cannot reach.
#pragma once

#include <cstring>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "src/core/result.h"

namespace shardproof {

/// Bytes that are allocated of a device's memory.
struct HeldBytes {
  uint64_t now = 0;
  uint64_t peak = 0;  ///< the most at once, ever
};

class Device {
 public:
  virtual ~Device() = default;
  /// A contiguous tensor of undefined content.
  /// \param purpose what it is for, for errors and fault points: an FQN or "bucket".
  /// \error kFailed naming purpose and bytes if there is no memory.
  virtual Result<at::Tensor> Allocate(at::IntArrayRef shape, at::ScalarType dtype,
                                      const std::string& purpose) = 0;
  /// Copies between any two of the host's memory and this one, in order with what was copied before;
  /// done on return. The stretches do not overlap.
  virtual void Copy(void* to, const void* from, uint64_t bytes) { std::memcpy(to, from, bytes); }
  /// Whether the host reads and writes what is allocated here.
  virtual bool IsHost() const { return true; }
  /// Whether this memory, which is not the host's, holds the tensor.
  virtual bool Holds(const at::Tensor&) const { return false; }
  /// What is allocated here; nothing of the host, whose memory the kernel counts. Any thread.
  virtual HeldBytes Held() const { return {}; }
};

/// Host memory through LibTorch's CPU allocator.
std::shared_ptr<Device> MakeHostDevice();

/// A tensor of shape, dtype and strides only; row-major if those are not given.
at::Tensor MetaTensor(at::IntArrayRef shape, at::ScalarType dtype);
at::Tensor MetaTensor(at::IntArrayRef shape, at::ScalarType dtype, at::IntArrayRef strides);

}  // namespace shardproof
