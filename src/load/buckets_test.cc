#include "src/load/buckets.h"

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

KeyMatch SomeTensors() {
  KeyMatch keys;
  keys.loads = {{MakeSlot("w", at::kFloat, {3, 5}), "w"},
                {MakeSlot("none", at::kFloat, {0, 4}), "none"},
                {MakeSlot("scalar", at::kDouble, {}), "scalar"},
                {MakeSlot("b", at::kBFloat16, {7}), "b"},
                {MakeSlot("flag", at::kBool, {1}), "flag"}};
  return keys;
}

TEST(PlanBuckets, CarriesEveryByteOnceAtAnyCapacity) {
  const KeyMatch keys = SomeTensors();
  uint64_t total = 0;
  for (const auto& [slot, key] : keys.loads) total += BytesOf(*slot);
  for (uint64_t capacity = 1; capacity <= total + 1; ++capacity) {
    SCOPED_TRACE(capacity);
    std::map<std::string, std::vector<int>> carried;
    for (const auto& [slot, key] : keys.loads) carried[key].assign(BytesOf(*slot), 0);
    const std::vector<Bucket> buckets = PlanBuckets(keys, capacity);
    EXPECT_EQ(buckets.size(), (total + capacity - 1) / capacity);
    for (const Bucket& bucket : buckets) {
      EXPECT_GT(bucket.bytes, 0u);
      ASSERT_LE(bucket.bytes, capacity);
      if (&bucket != &buckets.back()) {
        EXPECT_EQ(bucket.bytes, capacity);
      }
      uint64_t offset = 0;
      for (const Piece& piece : bucket.pieces) {
        EXPECT_GT(piece.length, 0u);
        EXPECT_EQ(piece.offset, offset);
        offset += piece.length;
        std::vector<int>& bytes = carried.at(piece.tensor);
        ASSERT_LE(piece.global_start + piece.length, bytes.size());
        for (uint64_t i = 0; i < piece.length; ++i) ++bytes[piece.global_start + i];
      }
      EXPECT_EQ(offset, bucket.bytes);
    }
    for (const auto& [name, bytes] : carried) EXPECT_THAT(bytes, Each(1)) << name;
  }
}

TEST(PlanBuckets, KeepsTheOrderAndMakesNothingOfNothing) {
  const KeyMatch keys = SomeTensors();
  const auto buckets = PlanBuckets(keys, 1 << 20);
  ASSERT_EQ(buckets.size(), 1u);
  ASSERT_EQ(buckets[0].pieces.size(), 4u);  // the empty tensor travels nowhere
  EXPECT_EQ(buckets[0].pieces[0].tensor, "w");
  EXPECT_EQ(buckets[0].pieces[3].tensor, "flag");
  EXPECT_TRUE(PlanBuckets({}, 16).empty());
  KeyMatch empty;
  empty.loads = {{MakeSlot("none", at::kFloat, {0}), "none"}};
  EXPECT_TRUE(PlanBuckets(empty, 16).empty());
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
      KeyMatch keys;
      keys.loads = {{slot, "w"}};
      for (int64_t rank = 0; rank < layout.ranks; ++rank) {
        at::Tensor expected = full;
        if (layout.placement.kind == Placement::Kind::kShard) {
          const int64_t dim = layout.placement.dim;
          const IndexRange range = ChunkOf(layout.shape[dim], layout.ranks, rank);
          expected = full.slice(dim, range.begin, range.end).contiguous();
        }
        for (uint64_t capacity = 1; capacity <= std::max<uint64_t>(1, full.nbytes()); ++capacity) {
          Place(*slot, layout, rank);
          for (const Bucket& bucket : PlanBuckets(keys, capacity)) {
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

TEST(MatchKeys, ATiedSlotTakesTheFirstOfItsNamesAndTheRestIsKnown) {
  auto device = MakeHostDevice();
  const auto model = BuildOnMeta(
      {.tensors =
           {{.name = "a", .shape = {2}},
            {.name = "b", .shape = {2}},
            {.name = "lost", .shape = {3}},
            {.name = "buffer", .kind = TensorKind::kBuffer, .persistent = false, .shape = {1}}},
       .ties = {{"a", "b"}}},
      0, *device);
  ASSERT_TRUE(model.ok());
  Source source;
  for (const char* name : {"b", "buffer", "extra"}) source.tensors[name].shape = {2};
  auto keys = MatchKeys(model.value(), source);
  ASSERT_TRUE(keys.ok()) << keys.error().message;
  ASSERT_EQ(keys.value().loads.size(), 1u);
  EXPECT_EQ(keys.value().loads[0].first->spec.name, "a");
  EXPECT_EQ(keys.value().loads[0].second, "b");
  ASSERT_EQ(keys.value().missing.size(), 1u);
  EXPECT_EQ(keys.value().missing[0]->spec.name, "lost");
  EXPECT_THAT(keys.value().unexpected, testing::ElementsAre("buffer", "extra"));

  source.tensors["a"].shape = {2};
  keys = MatchKeys(model.value(), source);
  ASSERT_TRUE(keys.ok());
  EXPECT_EQ(keys.value().loads[0].second, "a");
  EXPECT_THAT(keys.value().unexpected, testing::ElementsAre("buffer", "extra"));

  source.tensors["b"].shape = {2, 1};
  keys = MatchKeys(model.value(), source);
  ASSERT_FALSE(keys.ok());
  EXPECT_EQ(keys.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(keys.error().message, testing::HasSubstr("'b': the checkpoint has shape [2, 1]"));
}

}  // namespace
}  // namespace shardproof
