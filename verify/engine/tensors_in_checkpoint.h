// Under which keys a checkpoint of a training job keeps which tensors: fused ones may be kept in
// parts.
#pragma once

#include <string>
#include <vector>

#include "verify/case/case.h"
#include "verify/formats/stored.h"

namespace shardproof {

/// A tensor, and what it is kept as: itself, or parts that make it one after the other.
struct WholeTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<const formats::StoredTensor*> parts;
  /// Of a counter, which stands under the key of each part: those besides, which must be alike.
  std::vector<const formats::StoredTensor*> alike = {};
};

/// All tensors of a checkpoint, each key once: parts that `declared` says make a tensor are that
/// tensor, and so are those of its state ("optimizer.state.<key>.exp_avg"). \pre `checkpoint`
/// outlives what is returned.
std::vector<WholeTensor> TensorsKept(const formats::StoredCheckpoint& checkpoint,
                                     const std::vector<TensorCase>& declared);

}  // namespace shardproof
