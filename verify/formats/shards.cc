// Tensors of the shards that ranks saved in files of their own.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "verify/formats/stored.h"
#include "verify/oracle/header.h"
#include "verify/oracle/quote.h"

namespace shardproof::formats {
namespace {

using oracle::Printable;
using oracle::Quote;

/// The tensor that shards of one name make up. Those of the same elements are copies: the first of
/// each makes the tensor, the second of each, where there is one, another copy of it.
Status PutTogether(const std::string& where, std::vector<StoredShard>& shards,
                   StoredTensor& tensor) {
  std::map<std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>>,
           std::vector<StoredShard*>>
      copies;
  size_t most = 0;
  for (StoredShard& shard : shards) {
    if (shard.dtype != tensor.dtype || shard.shape != tensor.shape) {
      return BadInput(fmt::format(
          "{}: tensor {}: expected shards of one tensor, found one of {} [{}] and one of {} [{}]",
          Printable(where), Quote(tensor.name), tensor.dtype, fmt::join(tensor.shape, ", "),
          shard.dtype, fmt::join(shard.shape, ", ")));
    }
    std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>> boxes;
    for (const Chunk& chunk : shard.chunks) boxes.emplace_back(chunk.offsets, chunk.sizes);
    if (boxes.empty()) continue;  // the rank has no element of it
    copies[boxes].push_back(&shard);
    most = std::max(most, copies[boxes].size());
  }
  for (size_t i = 0; i < most; ++i) {
    std::vector<Chunk> chunks;
    for (const auto& [boxes, alike] : copies) {
      const StoredShard& shard = *alike[i < alike.size() ? i : 0];
      chunks.insert(chunks.end(), shard.chunks.begin(), shard.chunks.end());
    }
    if (i == 0)
      tensor.chunks = std::move(chunks);
    else
      tensor.replicas.push_back(std::move(chunks));
  }
  return CheckTiling(where, tensor);
}

}  // namespace

Status PutShardsTogether(const std::string& where, StoredCheckpoint& checkpoint, Damage* damage) {
  std::map<std::string, std::vector<StoredShard>> by_name;
  for (StoredShard& shard : checkpoint.shards) by_name[shard.name].push_back(std::move(shard));
  checkpoint.shards.clear();
  for (auto& [name, shards] : by_name) {
    StoredTensor tensor{name, shards[0].dtype, shards[0].shape, {}};
    const Status put = PutTogether(where, shards, tensor);
    if (put.ok()) {
      checkpoint.tensors.push_back(std::move(tensor));
    } else {
      SP_TRY(oracle::Note(put.error(), damage));
    }
  }
  return Ok();
}

}  // namespace shardproof::formats
