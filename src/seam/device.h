// The seam to memory. Every tensor and staging buffer of the pipeline is allocated here, so poison,
// budgets and failing allocations are decorators; and every byte that goes into one or comes out of
// it is copied here, so that memory may be where the host cannot reach.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstring>
#include <memory>
#include <string>

#include "src/core/result.h"

namespace shardproof {

/// Bytes that are allocated of a device's memory.
struct HeldBytes {
  uint64_t now = 0;
  uint64_t peak = 0;  ///< the most at once, ever
};

/// Side streams that copies go on: those of one stay in order, those of two have none.
enum class CopyStream { kToHost, kToDevice };

/// A stretch of the bytes of a tensor that is contiguous in memory.
struct TensorStretch {
  at::Tensor tensor;
  uint64_t begin = 0;  ///< bytes

  void* data() const { return static_cast<std::byte*>(tensor.mutable_data_ptr()) + begin; }
};

/// A copy under way. What it reads must not change, and what it writes not be touched, before Wait
/// returns.
class PendingCopy {
 public:
  virtual ~PendingCopy() = default;
  /// Returns once the copy is done, and with it those before it on its stream.
  virtual void Wait() = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  /// A contiguous tensor of undefined content.
  /// \param purpose what it is for, for errors and fault points: an FQN or "the bucket of w, b".
  /// \error kFailed naming purpose and bytes if there is no memory.
  virtual Result<at::Tensor> Allocate(at::IntArrayRef shape, at::ScalarType dtype,
                                      const std::string& purpose) = 0;
  /// Copies between any two of the host's memory and this one, in order with what was copied
  /// before; done on return. The stretches do not overlap.
  virtual void Copy(void* to, const void* from, uint64_t bytes) { std::memcpy(to, from, bytes); }
  /// Starts copying `bytes` between this memory and that of Host(), on a side stream. It comes
  /// after all that Copy has copied before. Where there are no streams, it is done on return.
  virtual std::unique_ptr<PendingCopy> StartCopy(CopyStream stream, const TensorStretch& to,
                                                 const TensorStretch& from, uint64_t bytes);
  /// The host's memory that side streams reach by themselves: pinned, where this memory is not the
  /// host's.
  virtual std::shared_ptr<Device> Host();
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
