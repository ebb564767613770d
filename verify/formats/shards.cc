// Tensors of the shards that ranks saved in files of their own.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "verify/formats/file_names.h"
#include "verify/formats/stored.h"
#include "verify/oracle/header.h"
#include "verify/oracle/quote.h"

namespace shardproof::formats {
namespace {

using oracle::Printable;
using oracle::Quote;

/// The first rank of the mesh that saved no shard, for people; empty if each did, or no shard says
/// where its rank is.
std::string MissingRank(const std::vector<StoredShard>& shards) {
  const std::vector<int64_t>& sizes = shards[0].place.sizes;
  std::set<std::vector<int64_t>> there;
  for (const StoredShard& shard : shards) {
    if (shard.place.sizes == sizes) there.insert(shard.place.coordinate);
  }
  std::vector<int64_t> rank(sizes.size(), 0);
  while (there.contains(rank)) {
    size_t dim = sizes.size();
    while (dim > 0 && ++rank[dim - 1] == sizes[dim - 1]) rank[--dim] = 0;
    if (dim == 0) return "";
  }
  return fmt::format("; there is no shard of the rank at [{}] in the mesh [{}]",
                     fmt::join(rank, ", "), fmt::join(sizes, ", "));
}

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

/// Two models of one job, such as policy and critic, or weights and their average, have the same
/// names in files of two families. What the files share goes before those names.
void NameByFamily(StoredCheckpoint& checkpoint) {
  std::map<std::string, std::set<std::string>> families;
  for (const StoredShard& shard : checkpoint.shards)
    families[shard.name].insert(FamilyOf(checkpoint.files[shard.file].name));
  for (StoredShard& shard : checkpoint.shards) {
    const std::string family = FamilyOf(checkpoint.files[shard.file].name);
    if (families[shard.name].size() > 1 && !family.empty()) shard.name = family + "/" + shard.name;
  }
}

}  // namespace

Status PutShardsTogether(const std::string& where, StoredCheckpoint& checkpoint, Damage* damage) {
  NameByFamily(checkpoint);
  std::map<std::string, std::vector<StoredShard>> by_name;
  for (StoredShard& shard : checkpoint.shards) by_name[shard.name].push_back(std::move(shard));
  checkpoint.shards.clear();
  for (auto& [name, shards] : by_name) {
    StoredTensor tensor{name, shards[0].dtype, shards[0].shape, {}};
    const Status put = PutTogether(where, shards, tensor);
    if (put.ok()) {
      checkpoint.tensors.push_back(std::move(tensor));
    } else {
      const std::string message = put.error().message + MissingRank(shards);
      SP_TRY(oracle::Note({put.error().code, message}, damage));
    }
  }
  return Ok();
}

}  // namespace shardproof::formats
