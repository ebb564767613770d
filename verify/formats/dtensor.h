// A DTensor as torch.save writes it: the shard of one rank, with its mesh and placements.
#pragma once

#include <optional>
#include <vector>

#include "src/core/result.h"
#include "verify/formats/torch_archive.h"

namespace shardproof::formats {

/// A box of the global tensor, and where it begins in the shard.
struct ShardBox {
  std::vector<int64_t> offsets;  ///< in the global tensor, elements per dim
  std::vector<int64_t> sizes;    ///< elements per dim
  std::vector<int64_t> local;    ///< of its first element in the shard, per dim
};

/// What one rank holds of a tensor.
struct SavedShard {
  std::vector<int64_t> shape;  ///< of the global tensor
  TorchTensor local;
  std::vector<ShardBox> boxes;  ///< none if the shard has no element
};

/// The shard that a value is; nothing if it is no DTensor.
/// \error kBadInput: it does not say what a DTensor says, or its shard does not have the shape that
///   its placements give it; kUnsupported: a placement that is not known, or Partial.
Result<std::optional<SavedShard>> AsShard(const TorchArchive& archive, const PickleValue& value);

}  // namespace shardproof::formats
