#include "src/load/buckets.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace shardproof {
namespace {

using ::testing::Each;

std::shared_ptr<Slot> MakeSlot(const std::string& name, at::ScalarType dtype,
                               std::vector<int64_t> shape) {
  return std::make_shared<Slot>(
      TensorSpec{.name = name, .dtype = dtype, .shape = std::move(shape)});
}

uint64_t BytesOf(const Slot& slot) {
  uint64_t bytes = c10::elementSize(slot.spec.dtype);
  for (const int64_t size : slot.spec.shape) bytes *= size;
  return bytes;
}

struct Checkpoint {
  KeyMatch keys;
  Source source;
};

/// Puts `slot` at the end of `file`, `gap` bytes after what lies there.
void Append(Checkpoint& to, const std::shared_ptr<Slot>& slot, int64_t file = 0, uint64_t gap = 0) {
  uint64_t end = 100;
  for (const auto& [name, tensor] : to.source.tensors) {
    if (tensor.file == file) end = std::max(end, tensor.offset + tensor.length);
  }
  to.source.tensors[slot->spec.name] = {.dtype = slot->spec.dtype,
                                        .shape = slot->spec.shape,
                                        .file = file,
                                        .offset = end + gap,
                                        .length = BytesOf(*slot)};
  to.keys.loads.push_back({slot, {{slot->spec.name, 0, BytesOf(*slot)}}});
}

Checkpoint SomeTensors() {
  Checkpoint made;
  Append(made, MakeSlot("w", at::kFloat, {3, 5}));
  Append(made, MakeSlot("none", at::kFloat, {0, 4}));
  Append(made, MakeSlot("scalar", at::kDouble, {}));
  Append(made, MakeSlot("b", at::kBFloat16, {7}));
  Append(made, MakeSlot("flag", at::kBool, {1}));
  return made;
}

/// That the buckets carry every byte of every tensor once, each from where it lies in its file.
void ExpectAllCarried(const Checkpoint& checkpoint, const std::vector<Bucket>& buckets,
                      uint64_t capacity) {
  std::map<std::string, std::vector<int>> carried;
  for (const auto& [slot, parts] : checkpoint.keys.loads) {
    carried[slot->spec.name].assign(BytesOf(*slot), 0);
  }
  for (const Bucket& bucket : buckets) {
    EXPECT_GT(bucket.bytes, 0u);
    ASSERT_LE(bucket.bytes, capacity);
    uint64_t offset = 0;
    for (const Piece& piece : bucket.pieces) {
      const SourceTensor& where = checkpoint.source.tensors.at(piece.tensor);
      EXPECT_GT(piece.length, 0u);
      EXPECT_EQ(piece.offset, offset);
      EXPECT_EQ(bucket.file, where.file);
      EXPECT_EQ(bucket.offset + piece.offset, where.offset + piece.global_start);
      offset += piece.length;
      std::vector<int>& bytes = carried.at(piece.tensor);
      ASSERT_LE(piece.global_start + piece.length, bytes.size());
      for (uint64_t i = 0; i < piece.length; ++i) ++bytes[piece.global_start + i];
    }
    EXPECT_EQ(offset, bucket.bytes);
  }
  for (const auto& [name, bytes] : carried) EXPECT_THAT(bytes, Each(1)) << name;
}

TEST(PlanBuckets, CarriesEveryByteOnceAtAnyCapacity) {
  const Checkpoint checkpoint = SomeTensors();
  uint64_t total = 0;
  for (const auto& [slot, parts] : checkpoint.keys.loads) total += BytesOf(*slot);
  for (uint64_t capacity = 1; capacity <= total + 1; ++capacity) {
    SCOPED_TRACE(capacity);
    const auto buckets = PlanBuckets(checkpoint.keys, checkpoint.source, capacity);
    EXPECT_EQ(buckets.size(), (total + capacity - 1) / capacity);
    ExpectAllCarried(checkpoint, buckets, capacity);
  }
}

TEST(PlanBuckets, EndsABucketAtTheEndOfAFileAndBeforeBytesThatNobodyLoads) {
  Checkpoint checkpoint;
  Append(checkpoint, MakeSlot("d", at::kByte, {4}), 1);
  Append(checkpoint, MakeSlot("a", at::kByte, {4}), 0);
  Append(checkpoint, MakeSlot("b", at::kByte, {4}), 0, 3);
  Append(checkpoint, MakeSlot("c", at::kByte, {4}), 0);
  const auto buckets = PlanBuckets(checkpoint.keys, checkpoint.source, 1 << 20);
  ExpectAllCarried(checkpoint, buckets, 1 << 20);
  std::vector<std::vector<std::string>> names;
  for (const Bucket& bucket : buckets) {
    names.emplace_back();
    for (const Piece& piece : bucket.pieces) names.back().push_back(piece.tensor);
  }
  using ::testing::ElementsAre;
  EXPECT_THAT(names, ElementsAre(ElementsAre("a"), ElementsAre("b", "c"), ElementsAre("d")));
}

TEST(PlanBuckets, MakesNothingOfNothing) {
  EXPECT_TRUE(PlanBuckets({}, {}, 16).empty());
  Checkpoint empty;
  Append(empty, MakeSlot("none", at::kFloat, {0}));
  EXPECT_TRUE(PlanBuckets(empty.keys, empty.source, 16).empty());
}

/// A tensor whose every byte is told from its neighbours.
at::Tensor Numbered(at::ScalarType dtype, const std::vector<int64_t>& shape) {
  at::Tensor tensor = at::empty(shape, at::TensorOptions().dtype(dtype));
  auto* bytes = static_cast<uint8_t*>(tensor.mutable_data_ptr());
  for (size_t i = 0; i < tensor.nbytes(); ++i) bytes[i] = static_cast<uint8_t>(i * 37 + 11);
  return tensor;
}

bool SameBytes(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && a.sizes() == b.sizes() &&
         (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

struct Layout {
  std::vector<int64_t> shape;
  Placement placement;
  int64_t ranks;
};

/// Gives `slot` rank's shard of `layout`, poisoned.
void Place(Slot& slot, const Layout& layout, int64_t rank) {
  slot.shard = ShardOf(layout.shape, {layout.placement}, {{{"dp_shard", layout.ranks}}}, {rank});
  slot.value = at::empty(slot.shard.local_shape, at::TensorOptions().dtype(slot.spec.dtype));
  if (slot.value.nbytes() > 0)
    std::memset(slot.value.mutable_data_ptr(), 0xee, slot.value.nbytes());
}

TEST(Unpack, EqualsADirectSliceAtEveryCut) {
  const std::vector<Layout> layouts = {
      {{5, 3}, Placement::Shard(0), 2},    {{5, 3}, Placement::Shard(0), 7},
      {{5, 3}, Placement::Shard(1), 2},    {{4, 7}, Placement::Shard(1), 3},
      {{2, 5, 3}, Placement::Shard(1), 2}, {{2, 3, 4}, Placement::Shard(2), 3},
      {{3, 2}, Placement::Replicate(), 2}, {{}, Placement::Replicate(), 2},
      {{0, 3}, Placement::Shard(0), 2},    {{6, 1}, Placement::Shard(1), 2}};
  for (const Layout& layout : layouts) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kByte}) {
      const at::Tensor full = Numbered(dtype, layout.shape);
      const auto slot = MakeSlot("w", dtype, layout.shape);
      Checkpoint checkpoint;
      Append(checkpoint, slot);
      for (int64_t rank = 0; rank < layout.ranks; ++rank) {
        at::Tensor expected = full;
        if (layout.placement.kind == Placement::Kind::kShard) {
          const int64_t dim = layout.placement.dim;
          const IndexRange range = ChunkOf(layout.shape[dim], layout.ranks, rank);
          expected = full.slice(dim, range.begin, range.end).contiguous();
        }
        for (uint64_t capacity = 1; capacity <= std::max<uint64_t>(1, full.nbytes()); ++capacity) {
          Place(*slot, layout, rank);
          for (const Bucket& bucket : PlanBuckets(checkpoint.keys, checkpoint.source, capacity)) {
            std::vector<std::byte> payload(bucket.bytes);
            for (const Piece& piece : bucket.pieces) {
              std::memcpy(payload.data() + piece.offset,
                          static_cast<const std::byte*>(full.const_data_ptr()) + piece.global_start,
                          piece.length);
            }
            Unpack(bucket.pieces, payload.data(), {{"w", slot}});
          }
          ASSERT_TRUE(SameBytes(slot->value, expected))
              << testing::PrintToString(layout.shape) << " dim " << layout.placement.dim << " rank "
              << rank << " of " << layout.ranks << ", buckets of " << capacity << ": "
              << slot->value << " is not " << expected;
        }
      }
    }
  }
}

TEST(Unpack, WritesOnlyWhatThePieceHolds) {
  const auto slot = MakeSlot("w", at::kByte, {4, 4});
  Place(*slot, {{4, 4}, Placement::Shard(1), 2}, 0);
  const std::vector<std::byte> payload(16, std::byte{1});
  Unpack({{"w", 5, 4, 3}}, payload.data(), {{"w", slot}});  // row 1 from column 1, row 2 up to 0
  const at::Tensor flat = slot->value.view(-1);
  std::vector<int> seen;
  for (int64_t i = 0; i < flat.numel(); ++i) seen.push_back(flat[i].item<uint8_t>());
  EXPECT_THAT(seen, testing::ElementsAre(0xee, 0xee, 0xee, 1, 1, 0xee, 0xee, 0xee));
}

}  // namespace
}  // namespace shardproof
