// How the bytes of many tensors travel in a few equal payloads: a pure plan that every rank makes
// alike, so that no metadata has to travel.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/load/key_match.h"
#include "src/seam/communicator.h"

namespace shardproof {

/// One payload.
struct Bucket {
  std::vector<Piece> pieces;
  uint64_t bytes = 0;
};

/// Packs the tensors to load, in order, into buckets of at most `capacity` bytes; a larger tensor is
/// cut. Empty tensors travel nowhere.
std::vector<Bucket> PlanBuckets(const KeyMatch& keys, uint64_t capacity);

/// Copies what each slot's shard owns out of a payload. `slots` is by canonical name.
void Unpack(const std::vector<Piece>& pieces, const std::byte* payload,
            const std::map<std::string, std::shared_ptr<Slot>>& slots);

}  // namespace shardproof
