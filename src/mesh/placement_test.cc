#include "src/mesh/placement.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace shardproof {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

int64_t CountOf(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

/// The global indices that a shard owns, in local order.
std::vector<int64_t> IndicesOf(const Shard& shard) {
  std::vector<int64_t> indices;
  for (const ElementRun& run : shard.runs) {
    for (uint64_t i = 0; i < run.count; ++i) {
      for (uint64_t j = 0; j < run.length; ++j) {
        indices.push_back(static_cast<int64_t>(run.start + i * run.stride + j));
      }
    }
  }
  return indices;
}

/// What ATen's own slicing takes of a tensor whose elements are their indices.
std::vector<int64_t> SliceOf(const std::vector<int64_t>& shape, int64_t dim, IndexRange range) {
  const at::Tensor all = at::arange(CountOf(shape), at::kLong).view(shape);
  const at::Tensor part = all.slice(dim, range.begin, range.end).contiguous().view(-1);
  const auto* data = part.const_data_ptr<int64_t>();
  return {data, data + part.numel()};
}

TEST(ChunkOf, IsTorchChunkForEveryLengthAndAxis) {
  for (int64_t length = 0; length <= 40; ++length) {
    const at::Tensor all = at::arange(length, at::kLong);
    for (int64_t axis = 1; axis <= 9; ++axis) {
      const std::vector<at::Tensor> chunks = all.chunk(axis);
      for (int64_t coordinate = 0; coordinate < axis; ++coordinate) {
        const IndexRange range = ChunkOf(length, axis, coordinate);
        const bool given = coordinate < static_cast<int64_t>(chunks.size());
        const int64_t size = given ? chunks[coordinate].numel() : 0;
        ASSERT_EQ(range.size(), size) << length << " over " << axis << " at " << coordinate;
        if (size == 0) continue;
        ASSERT_EQ(range.begin, chunks[coordinate][0].item<int64_t>())
            << length << " over " << axis << " at " << coordinate;
      }
    }
  }
}

TEST(ChunkOf, StaysWithinTheLengthWhereNothingIsLeft) {
  for (const int64_t coordinate : {2, 3, 7}) {
    const IndexRange range = ChunkOf(4, 8, 4 + coordinate % 4);
    EXPECT_EQ(range.begin, 4);
    EXPECT_EQ(range.end, 4);
  }
}

TEST(Mesh, NumbersRanksInRowMajorOrder) {
  const Mesh mesh{{{"dp_replicate", 2}, {"dp_shard", 3}, {"tp", 2}}};
  EXPECT_EQ(mesh.WorldSize(), 12);
  EXPECT_THAT(mesh.CoordinatesOf(0), ElementsAre(0, 0, 0));
  EXPECT_THAT(mesh.CoordinatesOf(1), ElementsAre(0, 0, 1));
  EXPECT_THAT(mesh.CoordinatesOf(2), ElementsAre(0, 1, 0));
  EXPECT_THAT(mesh.CoordinatesOf(7), ElementsAre(1, 0, 1));
  EXPECT_THAT(mesh.CoordinatesOf(11), ElementsAre(1, 2, 1));
  EXPECT_EQ(Mesh{}.WorldSize(), 1);
  EXPECT_TRUE(Mesh{}.CoordinatesOf(0).empty());
}

TEST(ShardOf, AgreesWithAtensSlicesAndTilesTheTensor) {
  const std::vector<std::vector<int64_t>> shapes = {
      {7},       {1},       {5, 3},    {3, 5}, {1, 4}, {4, 1}, {2, 3, 5},
      {3, 1, 4}, {2, 7, 3}, {6, 2, 2}, {0},    {0, 3}, {3, 0}, {2, 0, 3}};
  for (const auto& shape : shapes) {
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      for (int64_t size = 1; size <= 9; ++size) {
        const Mesh mesh{{{"dp_shard", size}}};
        std::vector<int> owners(CountOf(shape), 0);
        for (int64_t rank = 0; rank < size; ++rank) {
          SCOPED_TRACE(testing::Message() << "shape " << testing::PrintToString(shape) << " dim "
                                          << dim << " rank " << rank << " of " << size);
          const IndexRange range = ChunkOf(shape[dim], size, rank);
          const Shard shard =
              ShardOf(shape, {Placement::Shard(static_cast<int64_t>(dim))}, mesh, {rank});
          std::vector<int64_t> local = shape;
          local[dim] = range.size();
          EXPECT_EQ(shard.local_shape, local);
          EXPECT_EQ(shard.ElementCount(), static_cast<uint64_t>(CountOf(local)));
          const std::vector<int64_t> indices = IndicesOf(shard);
          ASSERT_EQ(indices, SliceOf(shape, static_cast<int64_t>(dim), range));
          for (const int64_t index : indices) ++owners[index];
        }
        EXPECT_THAT(owners, Each(1));
      }
    }
  }
}

TEST(ShardOf, CutsOnlyOnTheAxisThatShards) {
  const Mesh mesh{{{"dp_replicate", 2}, {"dp_shard", 3}}};
  const std::vector<Placement> placements = {Placement::Replicate(), Placement::Shard(0)};
  for (int64_t replica = 0; replica < 2; ++replica) {
    const Shard shard = ShardOf({7, 2}, placements, mesh, {replica, 1});
    EXPECT_THAT(shard.local_shape, ElementsAre(3, 2));
    EXPECT_THAT(IndicesOf(shard), ElementsAre(6, 7, 8, 9, 10, 11));
  }
  EXPECT_TRUE(ShardOf({4}, placements, mesh, {0, 2}).runs.empty());
}

TEST(ShardOf, AReplicaOwnsEverythingOnce) {
  const Mesh mesh{{{"dp_shard", 4}}};
  const Shard whole = ShardOf({2, 3}, {Placement::Replicate()}, mesh, {3});
  EXPECT_THAT(whole.local_shape, ElementsAre(2, 3));
  EXPECT_THAT(IndicesOf(whole), ElementsAre(0, 1, 2, 3, 4, 5));
  const Shard scalar = ShardOf({}, {Placement::Replicate()}, mesh, {3});
  EXPECT_TRUE(scalar.local_shape.empty());
  EXPECT_THAT(IndicesOf(scalar), ElementsAre(0));
  EXPECT_EQ(scalar.ElementCount(), 1u);
  const Shard empty = ShardOf({2, 0}, {Placement::Replicate()}, mesh, {1});
  EXPECT_TRUE(empty.runs.empty());
  EXPECT_EQ(empty.ElementCount(), 0u);
}

/// `parts` pieces along `dim`, empty ones at the end where ATen gives fewer.
std::vector<at::Tensor> Pieces(const at::Tensor& tensor, int64_t parts, int64_t dim) {
  std::vector<at::Tensor> pieces = tensor.chunk(parts, dim);
  while (static_cast<int64_t>(pieces.size()) < parts) pieces.push_back(tensor.narrow(dim, 0, 0));
  return pieces;
}

/// What DTensor's documentation gives a coordinate, by ATen's own chunks and concatenation.
at::Tensor LocalOf(at::Tensor tensor, const std::vector<Placement>& placements, const Mesh& mesh,
                   const std::vector<int64_t>& coordinates) {
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    const Placement& placement = placements[axis];
    if (!placement.IsShard()) continue;
    std::vector<at::Tensor> own;
    for (const at::Tensor& piece : Pieces(tensor, placement.split_factor, placement.dim)) {
      own.push_back(Pieces(piece, mesh.axes[axis].size, placement.dim)[coordinates[axis]]);
    }
    tensor = at::cat(own, placement.dim);
  }
  return tensor.contiguous();
}

TEST(ShardOf, FollowsAnyPlacementsOverThreeAxes) {
  const std::vector<std::vector<int64_t>> shapes = {{7},       {13, 5},   {4, 6},       {1, 9},
                                                    {5, 3, 4}, {3, 7, 5}, {2, 5, 3, 4}, {0, 3}};
  const std::vector<Placement> kinds = {
      Placement::Replicate(),        Placement::Shard(0),           Placement::Shard(-1),
      Placement::StridedShard(0, 2), Placement::StridedShard(0, 3), Placement::StridedShard(-1, 2)};
  const Mesh mesh{{{"dp_shard", 2}, {"ep", 3}, {"tp", 2}}};
  size_t compared = 0;
  for (const auto& shape : shapes) {
    const at::Tensor all = at::arange(CountOf(shape), at::kLong).view(shape);
    for (size_t which = 0; which < kinds.size() * kinds.size() * kinds.size(); ++which) {
      std::vector<Placement> placements = {kinds[which % kinds.size()],
                                           kinds[which / kinds.size() % kinds.size()],
                                           kinds[which / kinds.size() / kinds.size()]};
      for (Placement& placement : placements) {
        if (placement.dim < 0) placement.dim = static_cast<int64_t>(shape.size()) - 1;
      }
      for (int64_t rank = 0; rank < mesh.WorldSize(); ++rank) {
        const std::vector<int64_t> coordinates = mesh.CoordinatesOf(rank);
        const at::Tensor local = LocalOf(all, placements, mesh, coordinates);
        const Shard shard = ShardOf(shape, placements, mesh, coordinates);
        SCOPED_TRACE(testing::Message() << "shape " << testing::PrintToString(shape)
                                        << ", placements " << which << ", rank " << rank);
        ASSERT_EQ(at::IntArrayRef(shard.local_shape), local.sizes());
        const auto* data = local.const_data_ptr<int64_t>();
        ASSERT_EQ(IndicesOf(shard), std::vector<int64_t>(data, data + local.numel()));
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, shapes.size() * 216 * 12);
}

TEST(ShardOf, KeepsRowsOfOneBlockInOneRun) {
  const Mesh mesh{{{"dp_shard", 2}, {"tp", 2}}};
  const Shard block = ShardOf({1000, 64}, {Placement::Shard(0), Placement::Shard(1)}, mesh, {1, 1});
  ASSERT_EQ(block.runs.size(), 1u);
  EXPECT_EQ(block.runs[0].start, 500u * 64 + 32);
  EXPECT_EQ(block.runs[0].length, 32u);
  EXPECT_EQ(block.runs[0].count, 500u);
  EXPECT_EQ(block.runs[0].stride, 64u);
}

/// No test holds so much, so it is held against a small one: what lies within one index is `within`
/// times as much, and so is everything that is counted in elements.
TEST(ShardOf, CutsWhatHasMoreElementsThan32BitsCountAsWhatHasFew) {
  constexpr int64_t within = int64_t{1} << 40;
  const Mesh mesh{{{"dp_shard", 2}, {"tp", 3}}};
  const std::vector<Placement> kinds = {Placement::Replicate(), Placement::Shard(0),
                                        Placement::Shard(1), Placement::StridedShard(0, 3)};
  for (const Placement& first : kinds) {
    for (const Placement& second : kinds) {
      for (int64_t rank = 0; rank < mesh.WorldSize(); ++rank) {
        const std::vector<int64_t> coordinates = mesh.CoordinatesOf(rank);
        const Shard few = ShardOf({7, 5, 1}, {first, second}, mesh, coordinates);
        const Shard many = ShardOf({7, 5, within}, {first, second}, mesh, coordinates);
        EXPECT_EQ(many.ElementCount(), few.ElementCount() * within);
        ASSERT_EQ(many.runs.size(), few.runs.size());
        for (size_t i = 0; i < few.runs.size(); ++i) {
          EXPECT_EQ(many.runs[i].start, few.runs[i].start * within);
          EXPECT_EQ(many.runs[i].length, few.runs[i].length * within);
          EXPECT_EQ(many.runs[i].count, few.runs[i].count);
          EXPECT_EQ(many.runs[i].stride, few.runs[i].stride * within);
        }
      }
    }
  }
}

TEST(ShardOfDeathTest, RefusesAMistakenCaller) {
  const Mesh mesh{{{"a", 2}, {"b", 2}}};
  EXPECT_DEATH(ChunkOf(4, 2, 2), "check failed");
  EXPECT_DEATH(ShardOf({4}, {Placement::Shard(1), Placement::Replicate()}, mesh, {0, 0}),
               "check failed");
}

}  // namespace
}  // namespace shardproof
