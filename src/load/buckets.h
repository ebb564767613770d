// How the bytes of many tensors travel in a few payloads: a pure plan that every rank makes alike,
// so that no metadata has to travel. Each payload is a stretch of one file of the checkpoint: the
// rank that reads sends it from the mapping as it lies there, in the order of the disk, and copies
// nothing.
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
  int64_t file = 0;     ///< index into Source::files
  uint64_t offset = 0;  ///< absolute in that file, bytes
  std::vector<Piece> pieces;
  uint64_t bytes = 0;
};

/// Cuts what is to be loaded into buckets of at most `capacity` bytes, in the order of the files.
/// A bucket ends early where the next tensor lies in another file or past bytes that nobody loads.
/// Empty tensors travel nowhere.
std::vector<Bucket> PlanBuckets(const KeyMatch& keys, const Source& source, uint64_t capacity);

/// Copies what each slot's shard owns out of a payload. `slots` is by canonical name.
void Unpack(const std::vector<Piece>& pieces, const std::byte* payload,
            const std::map<std::string, std::shared_ptr<Slot>>& slots);

}  // namespace shardproof
