// How every rank's own bytes travel to it: the plan of rank0-scatter. A parcel is a stretch of what
// each rank holds, at the same bounds in local bytes, so that all ranks plan alike and a rank
// receives into its shard as it lies in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "src/load/key_match.h"

namespace shardproof {

/// Bytes [begin, end) of what each rank holds of a slot; a rank that holds less gets less.
struct Window {
  const SlotKeys* load = nullptr;
  uint64_t begin = 0;
  uint64_t end = 0;
};

/// What travels in one scatter.
struct Parcel {
  std::vector<Window> windows;
  uint64_t bytes =
      0;  ///< to each rank; what a rank does not hold is padding at the end of its window
};

/// The shards of a slot, by rank.
using ShardsOf = std::function<std::vector<Shard>(const Slot&)>;

/// Cuts what is to be loaded into parcels of at most `capacity` bytes to each rank, in the order of
/// the files. A window is never cut off in the middle of an element.
/// \param capacity  > 0; at least one element is sent even if that is more.
std::vector<Parcel> PlanParcels(const KeyMatch& keys, const Source& source,
                                const ShardsOf& shards_of, uint64_t capacity);

/// Copies bytes [begin, end) of what `shard` holds of a slot, in local order, out of the mapping,
/// to memory of the host or of `device`. \pre end is at most what the shard holds; source.mapped().
void CopyFromSource(const SlotKeys& load, const Shard& shard, uint64_t begin, uint64_t end,
                    const Source& source, Device& device, std::byte* to);

/// Where those bytes lie in the mapping, if they are one stretch of it; else null.
const std::byte* StretchOfSource(const SlotKeys& load, const Shard& shard, uint64_t begin,
                                 uint64_t end, const Source& source);

}  // namespace shardproof
