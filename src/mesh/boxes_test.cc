#include "src/mesh/boxes.h"

#include <gmock/gmock.h>

#include <set>

namespace shardproof {
namespace {

using ::testing::ElementsAre;

/// Every element of a box, by its global index, in the box's order.
std::vector<uint64_t> Elements(const std::vector<int64_t>& shape, const Box& box) {
  std::vector<uint64_t> elements;
  for (const ElementRun& run : RunsOfBox(shape, box.offsets, box.sizes)) {
    for (uint64_t i = 0; i < run.count; ++i) {
      for (uint64_t k = 0; k < run.length; ++k) elements.push_back(run.start + i * run.stride + k);
    }
  }
  return elements;
}

std::vector<uint64_t> Elements(const Shard& shard) {
  std::vector<uint64_t> elements;
  for (const ElementRun& run : shard.runs) {
    for (uint64_t i = 0; i < run.count; ++i) {
      for (uint64_t k = 0; k < run.length; ++k) elements.push_back(run.start + i * run.stride + k);
    }
  }
  return elements;
}

TEST(BoxesTest, AShardOfRowsIsOneBox) {
  const auto boxes = BoxesOf({5, 3}, {{2, 3}, {{9, 6, 1, 0}}});
  ASSERT_EQ(boxes.size(), 1u);
  EXPECT_THAT(boxes[0].offsets, ElementsAre(3, 0));
  EXPECT_THAT(boxes[0].sizes, ElementsAre(2, 3));
}

TEST(BoxesTest, AShardOfColumnsIsOneBox) {
  const auto boxes = BoxesOf({4, 5}, {{4, 2}, {{3, 2, 4, 5}}});
  ASSERT_EQ(boxes.size(), 1u);
  EXPECT_THAT(boxes[0].offsets, ElementsAre(0, 3));
  EXPECT_THAT(boxes[0].sizes, ElementsAre(4, 2));
}

TEST(BoxesTest, AFlatStretchIsCutAtItsRows) {
  const auto boxes = BoxesOf({4, 3}, {{7}, {{2, 7, 1, 0}}});
  ASSERT_EQ(boxes.size(), 2u);
  EXPECT_THAT(boxes[0].offsets, ElementsAre(0, 2));
  EXPECT_THAT(boxes[0].sizes, ElementsAre(1, 1));
  EXPECT_THAT(boxes[1].offsets, ElementsAre(1, 0));
  EXPECT_THAT(boxes[1].sizes, ElementsAre(2, 3));
  EXPECT_EQ(boxes[1].local_start, 1u);
}

TEST(BoxesTest, ATensorWithoutDimsIsOneBoxWithoutDims) {
  const auto boxes = BoxesOf({}, {{}, {{0, 1, 1, 0}}});
  ASSERT_EQ(boxes.size(), 1u);
  EXPECT_TRUE(boxes[0].offsets.empty());
  EXPECT_EQ(boxes[0].ElementCount(), 1u);
}

TEST(BoxesTest, NothingOwnedIsNoBox) { EXPECT_TRUE(BoxesOf({4, 3}, {{0, 3}, {}}).empty()); }

TEST(BoxesTest, BoxesHoldWhatTheShardHoldsInItsOrder) {
  const std::vector<std::vector<int64_t>> shapes = {{7}, {5, 3}, {3, 4, 5}, {2, 3, 4, 2}, {1, 6}};
  for (const auto& shape : shapes) {
    const auto dims = static_cast<int64_t>(shape.size());
    for (int64_t a = 0; a < dims; ++a) {
      for (int64_t b = 0; b < dims; ++b) {
        const Mesh mesh{{{"a", 2}, {"b", 3}}};
        const Placement outer = a == b ? Placement::StridedShard(a, 3) : Placement::Shard(a);
        for (int64_t rank = 0; rank < 6; ++rank) {
          const Shard shard =
              ShardOf(shape, {outer, Placement::Shard(b)}, mesh, mesh.CoordinatesOf(rank));
          std::vector<uint64_t> seen;
          for (const Box& box : BoxesOf(shape, shard)) {
            EXPECT_EQ(box.local_start, seen.size());
            for (const uint64_t element : Elements(shape, box)) seen.push_back(element);
          }
          EXPECT_EQ(seen, Elements(shard)) << rank << " " << a << " " << b;
        }
      }
    }
  }
}

TEST(BoxesTest, APartOfAShardIsWhatItHasOfThoseElements) {
  // Rows, columns, and rows of columns, as a strided shard has them; a flat stretch.
  const std::vector<Shard> shards = {
      {{2, 5}, {{10, 10, 1, 0}}},
      {{6, 2}, {{3, 2, 6, 5}}},
      {{4, 2}, {{0, 2, 2, 5}, {20, 2, 2, 5}}},
      {{11}, {{7, 11, 1, 0}}},
      {{0}, {}},
  };
  for (size_t s = 0; s < shards.size(); ++s) {
    const std::vector<uint64_t> held = Elements(shards[s]);
    for (uint64_t start = 0; start <= 30; ++start) {
      for (uint64_t count = 0; start + count <= 30; ++count) {
        SCOPED_TRACE(::testing::Message() << s << ": [" << start << ", +" << count << ")");
        std::vector<uint64_t> expected;
        uint64_t before = 0;
        for (const uint64_t element : held) {
          if (element < start) ++before;
          if (element >= start && element < start + count) expected.push_back(element - start);
        }
        uint64_t local_start = 0;
        const Shard part = PartOfShard(shards[s], start, count, local_start);
        EXPECT_EQ(Elements(part), expected);
        if (!expected.empty()) {
          EXPECT_EQ(local_start, before);
        }
      }
    }
  }
}

}  // namespace
}  // namespace shardproof
