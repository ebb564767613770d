#include "src/mesh/placement.h"

#include <algorithm>

#include "src/core/check.h"

namespace shardproof {

int64_t Mesh::WorldSize() const {
  int64_t world = 1;
  for (const MeshAxis& axis : axes) world *= axis.size;
  return world;
}

std::vector<int64_t> Mesh::CoordinatesOf(int64_t rank) const {
  std::vector<int64_t> coordinates(axes.size());
  for (size_t i = axes.size(); i-- > 0;) {
    coordinates[i] = rank % axes[i].size;
    rank /= axes[i].size;
  }
  return coordinates;
}

IndexRange ChunkOf(int64_t length, int64_t axis_size, int64_t coordinate) {
  SP_CHECK(axis_size >= 1 && coordinate >= 0 && coordinate < axis_size);
  const int64_t chunk = (length + axis_size - 1) / axis_size;
  const int64_t begin = std::min(length, chunk * coordinate);
  return {begin, std::min(length, begin + chunk)};
}

uint64_t Shard::ElementCount() const {
  uint64_t count = 0;
  for (const ElementRun& run : runs) count += run.length * run.count;
  return count;
}

Shard ShardOf(const std::vector<int64_t>& shape, const std::vector<Placement>& placements,
              const Mesh& mesh, const std::vector<int64_t>& coordinates) {
  Shard shard{shape, {}};
  size_t sharded_dim = shape.size();
  IndexRange range;
  for (size_t i = 0; i < placements.size(); ++i) {
    if (placements[i].kind != Placement::Kind::kShard) continue;
    SP_CHECK(sharded_dim == shape.size(), "one sharded axis at most");
    sharded_dim = placements[i].dim;
    SP_CHECK(sharded_dim < shape.size());
    range = ChunkOf(shape[sharded_dim], mesh.axes[i].size, coordinates[i]);
    shard.local_shape[sharded_dim] = range.size();
  }
  uint64_t outer = 1;
  uint64_t inner = 1;
  for (size_t d = 0; d < shape.size(); ++d) (d < sharded_dim ? outer : inner) *= shape[d];
  if (sharded_dim == shape.size()) {
    if (outer > 0) shard.runs.push_back({0, outer, 1, 0});
    return shard;
  }
  const uint64_t row = shape[sharded_dim] == 0 ? 0 : inner / shape[sharded_dim];
  const uint64_t length = row * range.size();
  if (length == 0 || outer == 0) return shard;
  shard.runs.push_back({row * range.begin, length, outer, outer > 1 ? inner : 0});
  return shard;
}

}  // namespace shardproof
