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

bool IsFirstReplica(const std::vector<Placement>& placements,
                    const std::vector<int64_t>& coordinates) {
  for (size_t axis = 0; axis < coordinates.size(); ++axis) {
    const bool sharded = axis < placements.size() && placements[axis].IsShard();
    if (!sharded && coordinates[axis] != 0) return false;
  }
  return true;
}

uint64_t Shard::ElementCount() const {
  uint64_t count = 0;
  for (const ElementRun& run : runs) count += run.length * run.count;
  return count;
}

namespace {

/// What is owned of one dim, in local order; ranges that touch are one.
using Ranges = std::vector<IndexRange>;

int64_t SizeOf(const Ranges& ranges) {
  int64_t size = 0;
  for (const IndexRange& range : ranges) size += range.size();
  return size;
}

void Append(const IndexRange& range, Ranges& ranges) {
  if (range.size() == 0) return;
  if (!ranges.empty() && ranges.back().end == range.begin)
    ranges.back().end = range.end;
  else
    ranges.push_back(range);
}

/// The part of `ranges`, end to end, that a coordinate gets.
Ranges PartOf(const Ranges& ranges, int64_t axis_size, int64_t coordinate) {
  const IndexRange wanted = ChunkOf(SizeOf(ranges), axis_size, coordinate);
  Ranges chunk;
  int64_t offset = 0;
  for (const IndexRange& range : ranges) {
    const int64_t from = std::max<int64_t>(0, wanted.begin - offset);
    const int64_t to = std::min(range.size(), wanted.end - offset);
    if (from < to) Append({range.begin + from, range.begin + to}, chunk);
    offset += range.size();
  }
  return chunk;
}

Ranges Cut(const Ranges& ranges, const Placement& placement, int64_t axis_size,
           int64_t coordinate) {
  Ranges cut;
  for (int64_t piece = 0; piece < placement.split_factor; ++piece) {
    const Ranges whole = PartOf(ranges, placement.split_factor, piece);
    for (const IndexRange& range : PartOf(whole, axis_size, coordinate)) Append(range, cut);
  }
  return cut;
}

/// The runs of a block of indices, in local row-major order.
class RunsOf {
 public:
  RunsOf(const std::vector<int64_t>& shape, const std::vector<Ranges>& owned)
      : shape_(shape), owned_(owned), stride_(shape.size() + 1, 1) {
    for (size_t d = shape.size(); d-- > 0;) stride_[d] = stride_[d + 1] * shape[d];
    cut_ = shape.size();
    while (cut_ > 0 && IsWhole(cut_ - 1)) --cut_;  // dims from here on are owned whole
  }

  std::vector<ElementRun> Make() {
    if (cut_ == 0) return {{0, stride_[0], 1, 0}};
    // Rows of one dim that follow each other repeat the same stretch at one stride.
    repeat_ = cut_ - 1;
    while (owned_[cut_ - 1].size() == 1 && repeat_ > 0 && owned_[repeat_ - 1].size() == 1) {
      --repeat_;
      if (!IsWhole(repeat_)) break;
    }
    Visit(0, 0);
    return std::move(runs_);
  }

 private:
  bool IsWhole(size_t d) const { return owned_[d].size() == 1 && owned_[d][0].size() == shape_[d]; }

  void Visit(size_t d, uint64_t base) {
    if (d == repeat_) return AddRuns(base);
    for (const IndexRange& range : owned_[d]) {
      for (int64_t i = range.begin; i < range.end; ++i) Visit(d + 1, base + i * stride_[d + 1]);
    }
  }

  void AddRuns(uint64_t base) {
    uint64_t count = 1;
    for (size_t d = repeat_; d + 1 < cut_; ++d) {
      count *= owned_[d][0].size();
      base += owned_[d][0].begin * stride_[d + 1];
    }
    for (const IndexRange& range : owned_[cut_ - 1]) {
      const uint64_t length = range.size() * stride_[cut_];
      runs_.push_back(
          {base + range.begin * stride_[cut_], length, count, count > 1 ? stride_[cut_ - 1] : 0});
    }
  }

  const std::vector<int64_t>& shape_;
  const std::vector<Ranges>& owned_;
  std::vector<uint64_t> stride_;  ///< elements of what lies within one index of dim d - 1
  size_t cut_ = 0;                ///< one past the last dim that is owned in part
  size_t repeat_ = 0;             ///< dims [repeat_, cut_ - 1) make the count of a run
  std::vector<ElementRun> runs_;
};

}  // namespace

Shard ShardOf(const std::vector<int64_t>& shape, const std::vector<Placement>& placements,
              const Mesh& mesh, const std::vector<int64_t>& coordinates) {
  std::vector<Ranges> owned;
  for (const int64_t size : shape) {
    owned.emplace_back();
    Append({0, size}, owned.back());
  }
  for (size_t i = 0; i < placements.size(); ++i) {
    if (!placements[i].IsShard()) continue;
    const auto dim = static_cast<size_t>(placements[i].dim);
    SP_CHECK(dim < shape.size());
    owned[dim] = Cut(owned[dim], placements[i], mesh.axes[i].size, coordinates[i]);
  }
  Shard shard;
  bool any = true;
  for (const Ranges& ranges : owned) {
    shard.local_shape.push_back(SizeOf(ranges));
    any = any && shard.local_shape.back() > 0;
  }
  if (any) shard.runs = RunsOf(shape, owned).Make();
  return shard;
}

}  // namespace shardproof
