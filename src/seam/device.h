// The seam to memory. Every tensor and staging buffer of the pipeline is allocated here, so poison,
// budgets and failing allocations are decorators.
#pragma once

#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "src/core/result.h"

namespace shardproof {

class Device {
 public:
  virtual ~Device() = default;
  /// A contiguous tensor of undefined content.
  /// \param purpose what it is for, for errors and fault points: an FQN or "bucket".
  /// \error kFailed naming purpose and bytes if there is no memory.
  virtual Result<at::Tensor> Allocate(at::IntArrayRef shape, at::ScalarType dtype,
                                      const std::string& purpose) = 0;
};

/// Host memory through LibTorch's CPU allocator.
std::shared_ptr<Device> MakeHostDevice();

/// A tensor of shape and dtype only.
at::Tensor MetaTensor(at::IntArrayRef shape, at::ScalarType dtype);

}  // namespace shardproof
