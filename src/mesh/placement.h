// Meshes, placements and the arithmetic of shards: pure integer functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shardproof {

struct MeshAxis {
  std::string name;  ///< "dp_shard", ...
  int64_t size = 1;  ///< ranks, >= 1
};

/// Ranks in row-major order over the axes.
struct Mesh {
  std::vector<MeshAxis> axes;

  int64_t WorldSize() const;
  std::vector<int64_t> CoordinatesOf(int64_t rank) const;
};

/// How a tensor lies on one mesh axis.
struct Placement {
  enum class Kind { kReplicate, kShard, kStridedShard };
  Kind kind = Kind::kReplicate;
  int64_t dim = 0;           ///< of the tensor; not for kReplicate
  int64_t split_factor = 1;  ///< kStridedShard: pieces of which each is cut for itself

  static Placement Replicate() { return {}; }
  static Placement Shard(int64_t dim) { return {Kind::kShard, dim}; }
  /// A shard of a dim that axes further right have already cut into `split_factor` pieces: every
  /// piece is cut for itself, and a coordinate owns its part of each.
  static Placement StridedShard(int64_t dim, int64_t split_factor) {
    return {Kind::kStridedShard, dim, split_factor};
  }
  bool IsShard() const { return kind != Kind::kReplicate; }
  friend bool operator==(const Placement&, const Placement&) = default;
};

/// A half-open range of indices along one tensor dim.
struct IndexRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

/// The block of `length` indices that coordinate `coordinate` of an axis of `axis_size` ranks owns
/// under torch.chunk's rule: blocks of ceil(length / axis_size), trailing ones shorter or empty.
/// \source torch.chunk documentation; FSDP2 dim-0 sharding.
IndexRange ChunkOf(int64_t length, int64_t axis_size, int64_t coordinate);

/// `count` equal stretches of elements in global row-major order. Elements.
struct ElementRun {
  uint64_t start = 0;
  uint64_t length = 0;
  uint64_t count = 1;
  uint64_t stride = 0;
};

/// What one rank owns of a tensor: its local shape, and which global elements, in local row-major
/// order.
struct Shard {
  std::vector<int64_t> local_shape;
  std::vector<ElementRun> runs;  ///< empty if nothing is owned

  uint64_t ElementCount() const;
};

/// Whether a rank is the first of those that hold the same part: of replicas one acts for all.
bool IsFirstReplica(const std::vector<Placement>& placements,
                    const std::vector<int64_t>& coordinates);

/// Axes act in order, each on what the ones before it left.
/// \param shape       global; any rank, 0-dim included.
/// \param placements  one per mesh axis.
/// \param coordinates of the rank on the mesh.
/// \source DTensor: torch.distributed.tensor.placement_types, Shard and _StridedShard.
Shard ShardOf(const std::vector<int64_t>& shape, const std::vector<Placement>& placements,
              const Mesh& mesh, const std::vector<int64_t>& coordinates);

}  // namespace shardproof
