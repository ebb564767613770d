// What one optimizer step computes its gradients from.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace shardproof {

/// Read once a step, alike on all ranks.
struct Batch {
  int64_t step = 0;              ///< of the job; counts from 1
  std::vector<int64_t> samples;  ///< one a micro-batch; they count from 1
  /// Canonical FQNs of parameters that it has no gradient for, as of experts that no token went to.
  std::set<std::string> without_gradient = {};
  float loss_scale = 0;  ///< gradients are F16, of the loss times this; 0: F32, of the loss
};

}  // namespace shardproof
