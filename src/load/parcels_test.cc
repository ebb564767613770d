#include "src/load/parcels.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

namespace shardproof {
namespace {

using Bytes = std::vector<std::byte>;

/// A file in memory.
class Memory : public MappedFile {
 public:
  explicit Memory(Bytes bytes) : bytes_(std::move(bytes)) {}
  const std::byte* data() const override { return bytes_.data(); }
  uint64_t size() const override { return bytes_.size(); }

 private:
  Bytes bytes_;
};

/// A tensor whose bytes are told from their neighbours, stored under keys of `part_rows` rows each.
struct Stored {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  std::vector<Placement> placements;
  std::vector<int64_t> part_rows;
};

struct World {
  Mesh mesh;
  Source source;
  KeyMatch keys;
  std::map<std::string, at::Tensor> full;

  std::vector<Shard> ShardsOf(const Slot& slot) const {
    std::vector<Shard> shards;
    for (int64_t rank = 0; rank < mesh.WorldSize(); ++rank) {
      shards.push_back(ShardOf(slot.spec.shape, slot.placements, mesh, mesh.CoordinatesOf(rank)));
    }
    return shards;
  }
};

World Make(const std::vector<Stored>& tensors, const Mesh& mesh) {
  World world{.mesh = mesh};
  Bytes file(100);
  for (const Stored& stored : tensors) {
    at::Tensor full = at::empty(stored.shape, at::TensorOptions().dtype(stored.dtype));
    auto* bytes = static_cast<std::byte*>(full.mutable_data_ptr());
    for (size_t i = 0; i < full.nbytes(); ++i) bytes[i] = std::byte(i * 37 + file.size());
    const auto slot = std::make_shared<Slot>(
        TensorSpec{.name = stored.name, .dtype = stored.dtype, .shape = stored.shape});
    slot->placements = stored.placements;
    SlotKeys load{slot, {}};
    uint64_t start = 0;
    for (const int64_t rows : stored.part_rows) {
      std::vector<int64_t> shape = stored.shape;
      uint64_t length = full.nbytes();
      if (!shape.empty()) {
        length = shape[0] == 0 ? 0 : length / shape[0] * rows;
        shape[0] = rows;
      }
      const std::string key = stored.name + "." + std::to_string(load.parts.size());
      world.source.tensors[key] = {stored.dtype, shape, 0, file.size(), length};
      load.parts.push_back({key, start, length});
      file.insert(file.end(), bytes + start, bytes + start + length);
      start += length;
      file.resize(file.size() + 3);  // parts do not lie end to end
    }
    EXPECT_EQ(start, full.nbytes());
    world.keys.loads.push_back(std::move(load));
    world.full[stored.name] = full;
  }
  world.source.files = {std::make_shared<Memory>(std::move(file))};
  return world;
}

World WorldOfMixedTensors() {
  const Placement whole = Placement::Replicate();
  return Make(
      {{"w", at::kFloat, {7, 3}, {Placement::Shard(0), whole}, {7}},
       {"columns", at::kBFloat16, {5, 6}, {Placement::Shard(0), Placement::Shard(1)}, {5}},
       {"strided", at::kFloat, {11, 2}, {Placement::StridedShard(0, 2), Placement::Shard(0)}, {11}},
       {"packed",
        at::kByte,
        {6, 2, 3},
        {Placement::StridedShard(0, 2), Placement::Shard(0)},
        {1, 2, 1, 2}},
       {"packed_columns", at::kHalf, {4, 6}, {whole, Placement::Shard(1)}, {3, 1}},
       {"scalar", at::kDouble, {}, {whole, whole}, {1}},
       {"none", at::kFloat, {0, 4}, {Placement::Shard(0), whole}, {0}},
       {"norm", at::kFloat, {3}, {whole, whole}, {3}}},
      {{{"dp_shard", 3}, {"tp", 2}}});
}

/// What a rank holds of a tensor, by ATen's own indexing.
Bytes LocalBytes(const at::Tensor& full, const Shard& shard) {
  Bytes local;
  const auto* bytes = static_cast<const std::byte*>(full.const_data_ptr());
  const uint64_t element = full.element_size();
  for (const ElementRun& run : shard.runs) {
    for (uint64_t i = 0; i < run.count; ++i) {
      const std::byte* from = bytes + (run.start + i * run.stride) * element;
      local.insert(local.end(), from, from + run.length * element);
    }
  }
  return local;
}

TEST(PlanParcels, BringsEveryRankItsOwnBytesAtAnyCapacity) {
  const World world = WorldOfMixedTensors();
  const auto shards_of = [&](const Slot& slot) { return world.ShardsOf(slot); };
  size_t compared = 0;
  for (uint64_t capacity = 1; capacity < 120; ++capacity) {
    const auto parcels = PlanParcels(world.keys, world.source, shards_of, capacity);
    std::map<std::pair<std::string, int64_t>, Bytes> received;
    for (const Parcel& parcel : parcels) {
      EXPECT_LE(parcel.bytes, std::max<uint64_t>(capacity, 8));
      uint64_t bytes = 0;
      for (const Window& window : parcel.windows) {
        ASSERT_LT(window.begin, window.end);
        bytes += window.end - window.begin;
        const Slot& slot = *window.load->slot;
        for (int64_t rank = 0; rank < world.mesh.WorldSize(); ++rank) {
          const Shard shard = world.ShardsOf(slot)[rank];
          const uint64_t held = shard.ElementCount() * slot.ElementBytes();
          const uint64_t end = std::min(window.end, held);
          Bytes& to = received[{slot.spec.name, rank}];
          if (window.begin >= end) continue;
          EXPECT_EQ(to.size(), window.begin);
          to.resize(end);
          CopyFromSource(*window.load, shard, window.begin, end, world.source, *MakeHostDevice(),
                         to.data() + window.begin);
          const std::byte* stretch =
              StretchOfSource(*window.load, shard, window.begin, end, world.source);
          if (stretch == nullptr) continue;
          EXPECT_EQ(std::memcmp(stretch, to.data() + window.begin, end - window.begin), 0);
        }
      }
      EXPECT_EQ(bytes, parcel.bytes);
    }
    for (const SlotKeys& load : world.keys.loads) {
      const std::string& name = load.slot->spec.name;
      for (int64_t rank = 0; rank < world.mesh.WorldSize(); ++rank) {
        const Shard shard = world.ShardsOf(*load.slot)[rank];
        const Bytes seen = received[{name, rank}];
        ASSERT_EQ(seen, LocalBytes(world.full.at(name), shard)) << name << " on rank " << rank;
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 119u * 8 * 6);
}

TEST(StretchOfSource, IsFoundWhereRowsLieEndToEndAndNowhereElse) {
  const World world = WorldOfMixedTensors();
  const auto stretch = [&](size_t load, int64_t rank, uint64_t begin, uint64_t end) {
    const SlotKeys& keys = world.keys.loads[load];
    return StretchOfSource(keys, world.ShardsOf(*keys.slot)[rank], begin, end, world.source);
  };
  const auto start_of = [&](const std::string& key) {
    return world.source.BytesOf(world.source.tensors.at(key));
  };
  EXPECT_EQ(stretch(0, 2, 0, 36), start_of("w.0") + 36);  // dp_shard 1: rows 3 to 5
  EXPECT_EQ(stretch(0, 2, 12, 24), start_of("w.0") + 48);
  EXPECT_EQ(stretch(1, 0, 0, 12), nullptr);  // two rows of three columns each
  EXPECT_EQ(stretch(1, 1, 6, 12), start_of("columns.0") + 18);
  EXPECT_EQ(stretch(4, 0, 0, 24), nullptr);
}

TEST(PlanParcels, SendsNothingOfWhatIsEmpty) {
  const auto shards_of = [](const Slot&) { return std::vector<Shard>(2); };
  EXPECT_TRUE(PlanParcels({}, {}, shards_of, 16).empty());
  const World world =
      Make({{"none", at::kFloat, {0, 4}, {Placement::Shard(0)}, {0}}}, {{{"dp_shard", 2}}});
  const auto own = [&](const Slot& slot) { return world.ShardsOf(slot); };
  EXPECT_TRUE(PlanParcels(world.keys, world.source, own, 16).empty());
}

}  // namespace
}  // namespace shardproof
