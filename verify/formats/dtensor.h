// What one rank holds of a tensor, as torch.save writes it: a DTensor, with its mesh and
// placements, or a ShardedTensor, with the boxes of its shards.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/formats/torch_archive.h"

namespace shardproof::formats {

/// A box of the global tensor, and where it begins in the part.
struct ShardBox {
  std::vector<int64_t> offsets;  ///< in the global tensor, elements per dim
  std::vector<int64_t> sizes;    ///< elements per dim
  std::vector<int64_t> local;    ///< of its first element in the part, per dim
};

/// A local tensor, and the boxes of the global one that it holds.
struct ShardPart {
  TorchTensor local;
  std::vector<ShardBox> boxes;
};

/// What one rank holds of a tensor.
struct SavedShard {
  std::string dtype;
  std::vector<int64_t> shape;  ///< of the global tensor
  std::vector<ShardPart> parts;
  MeshPlace place;
};

/// The shard that a value stands for; nothing if it is neither a DTensor nor a ShardedTensor.
/// \error kBadInput: it does not say what such a one says, or a local tensor does not have the
/// shape
///   that is said of it; kUnsupported: a placement that is not known, or Partial.
Result<std::optional<SavedShard>> AsShard(const TorchArchive& archive, const PickleValue& value);

/// An attribute in an object's state; what a class keeps in __slots__ is in a dict of its own
/// beside that of its attributes. Null if there is none.
const PickleValue* Slot(const PickleValue& state, const char* name);

/// As AsShard, of a ShardedTensor alone.
Result<std::optional<SavedShard>> AsShardedTensor(const TorchArchive& archive,
                                                  const PickleValue& value);

}  // namespace shardproof::formats
