// What a rank owns of a tensor as boxes: the only shape in which checkpoints of
// torch.distributed.checkpoint can say it.
#pragma once

#include <cstdint>
#include <vector>

#include "src/mesh/placement.h"

namespace shardproof {

/// Some of a tensor's indices along every dim, elements.
struct Box {
  std::vector<int64_t> offsets;
  std::vector<int64_t> sizes;
  uint64_t local_start = 0;  ///< its first element in the shard's local order; the others follow it

  uint64_t ElementCount() const;
};

/// Boxes that together are the shard, none with another in common, in the shard's local order: one
/// for a shard along one dim, more for strided ones and for flat stretches that begin or end within
/// a row. None if the shard owns nothing.
/// \param shape  global; 0-dim: one box without dims.
std::vector<Box> BoxesOf(const std::vector<int64_t>& shape, const Shard& shard);

/// What a shard has of elements [start, start + count) of its tensor, as a shard of a tensor of
/// these alone; without a local shape. \param local_start  set to the first of them in the shard's
/// local order; the others follow it.
Shard PartOfShard(const Shard& shard, uint64_t start, uint64_t count, uint64_t& local_start);

/// The stretches of the global row-major order that make a box, in its own order.
std::vector<ElementRun> RunsOfBox(const std::vector<int64_t>& shape,
                                  const std::vector<int64_t>& offsets,
                                  const std::vector<int64_t>& sizes);

}  // namespace shardproof
