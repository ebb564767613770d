#include "src/model/model.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "src/load/key_match.h"
#include "src/pipeline/reference_stages.h"
#include "src/shard/shard.h"

namespace shardproof {
namespace {

using ::testing::ElementsAre;

ModelSpec SmallSpec() {
  return {.tensors = {{.name = "embed.weight",
                       .dtype = at::kBFloat16,
                       .shape = {5, 2},
                       .attributes = {{"sharded_by", "me"}}},
                      {.name = "block.0.scale", .shape = {}},
                      {.name = "block.0.bias",
                       .kind = TensorKind::kBuffer,
                       .shape = {3},
                       .init = InitialValue::kOnes,
                       .built_real = true},
                      {.name = "block.1.inv_freq",
                       .kind = TensorKind::kBuffer,
                       .persistent = false,
                       .shape = {2},
                       .rope = RopeSpec{}},
                      {.name = "head.weight", .dtype = at::kBFloat16, .shape = {5, 2}}},
          .ties = {{"embed.weight", "head.weight"}}};
}

Model Build(const ModelSpec& spec) {
  auto model = BuildOnMeta(spec, 7, *MakeHostDevice());
  EXPECT_TRUE(model.ok());
  return std::move(model).value();
}

std::shared_ptr<Slot> Find(const Model& model, const std::string& name) {
  for (const auto& [known, slot] : model.Named()) {
    if (known == name) return slot;
  }
  ADD_FAILURE() << "no slot " << name;
  return nullptr;
}

TEST(BuildOnMeta, TiedNamesShareOneSlot) {
  const Model model = Build(SmallSpec());
  EXPECT_EQ(model.Slots().size(), 4u);
  EXPECT_EQ(model.Named().size(), 5u);
  EXPECT_EQ(Find(model, "embed.weight"), Find(model, "head.weight"));
  EXPECT_THAT(Find(model, "head.weight")->names, ElementsAre("embed.weight", "head.weight"));
  std::set<int64_t> identities;
  for (const auto& slot : model.Slots()) identities.insert(slot->identity);
  EXPECT_EQ(identities.size(), 4u);
}

TEST(BuildOnMeta, ATieIsWhatItsCanonicalNameSays) {
  ModelSpec spec = SmallSpec();
  spec.ties = {{"head.weight", "embed.weight"}};
  const Model model = Build(spec);
  const auto slot = Find(model, "embed.weight");
  EXPECT_EQ(slot->spec.name, "head.weight");
  EXPECT_THAT(slot->names, ElementsAre("head.weight", "embed.weight"));
  EXPECT_TRUE(slot->spec.attributes.empty()) << "the attributes are the other name's";
}

TEST(BuildOnMeta, OnlyBuiltRealTensorsAreReal) {
  const Model model = Build(SmallSpec());
  for (const auto& [name, slot] : model.Named()) {
    EXPECT_EQ(slot->value.is_meta(), name != "block.0.bias") << name;
    EXPECT_EQ(slot->content, name == "block.0.bias" ? SlotContent::kDefined : SlotContent::kNone);
    EXPECT_EQ(slot->value.scalar_type(), slot->spec.dtype);
  }
  EXPECT_TRUE(at::equal(Find(model, "block.0.bias")->value, at::ones({3})));
}

TEST(Model, HasMetaCountsBuffersAndParameters) {
  ModelSpec spec = SmallSpec();
  spec.ties.clear();
  const Model model = Build(spec);
  std::vector<std::shared_ptr<Slot>> slots = model.Slots();
  for (const auto& slot : slots) slot->value = at::zeros(slot->spec.shape);
  EXPECT_FALSE(model.HasMeta());
  for (const auto& slot : slots) {
    const at::Tensor real = slot->value;
    slot->value = MetaTensor(slot->spec.shape, slot->spec.dtype);
    EXPECT_TRUE(model.HasMeta()) << slot->spec.name;
    slot->value = real;
  }
}

/// A parameter [2, 3] of F32 whose columns lie one after the other, and gaps between them.
Slot Transposed() { return Slot(TensorSpec{.name = "w", .shape = {2, 3}, .strides = {1, 4}}); }

TEST(Slot, IsAllocatedInTheOrderOfItsStridesWithoutGaps) {
  const Slot slot = Transposed();
  EXPECT_THAT(slot.value.strides(), ElementsAre(1, 4));
  const auto device = MakeHostDevice();
  const auto whole = slot.Allocate({2, 3}, *device);
  ASSERT_TRUE(whole.ok());
  EXPECT_THAT(whole.value().strides(), ElementsAre(1, 2));
  EXPECT_EQ(whole.value().nbytes(), 24u);
  EXPECT_THAT(slot.Allocate({1, 3}, *device).value().strides(), ElementsAre(1, 1));
  EXPECT_THAT(slot.OnMeta({2, 2}).strides(), ElementsAre(1, 2));
  EXPECT_TRUE(slot.OnMeta({2, 2}).is_meta());
}

TEST(Slot, CopiesRowMajorBytesHoweverItLies) {
  Slot slot = Transposed();
  slot.value = slot.Allocate({2, 3}, *MakeHostDevice()).value();
  const at::Tensor rows = at::arange(6, at::kFloat).view({2, 3});
  const auto* bytes = static_cast<const std::byte*>(rows.const_data_ptr());
  // In pieces that begin and end within elements.
  for (uint64_t done = 0; done < 24; done += 5) {
    slot.CopyIn(done, bytes + done, std::min<uint64_t>(5, 24 - done));
  }
  EXPECT_TRUE(at::equal(slot.value, rows));
  std::vector<std::byte> out(24);
  for (uint64_t done = 0; done < 24; done += 7) {
    slot.CopyOut(done, out.data() + done, std::min<uint64_t>(7, 24 - done));
  }
  EXPECT_EQ(std::memcmp(out.data(), bytes, 24), 0);
}

/// One rank of a world that never meets: sharding and materialising need no collective.
class Alone : public Communicator {
 public:
  explicit Alone(int64_t rank, int64_t world_size) : rank_(rank), world_size_(world_size) {}
  int64_t rank() const override { return rank_; }
  int64_t world_size() const override { return world_size_; }
  Result<std::unique_ptr<Pending>> Broadcast(at::Tensor, int64_t, std::vector<Piece>) override {
    return Internal("nothing should be broadcast");
  }
  Result<std::unique_ptr<Pending>> Scatter(at::Tensor, std::vector<at::Tensor>, int64_t,
                                           std::vector<std::string>) override {
    return Internal("nothing should be scattered");
  }
  Result<int64_t> Max(int64_t, const std::string&) override {
    return Internal("nothing should be reduced");
  }
  Result<std::vector<int64_t>> Sum(std::vector<int64_t>, const std::string&) override {
    return Internal("nothing should be reduced");
  }

 private:
  int64_t rank_;
  int64_t world_size_;
};

TEST(ShardModel, KeepsIdentitiesTiesAttributesAndRealBuffers) {
  Model model = Build(SmallSpec());
  std::map<std::string, int64_t> identities;
  for (const auto& [name, slot] : model.Named()) identities[name] = slot->identity;
  const auto bias = Find(model, "block.0.bias");
  bias->value.fill_(42);
  const void* memory = bias->value.const_data_ptr();

  Job job;
  job.mesh = {{{"dp_shard", 3}}};
  World world;
  world.device = MakeHostDevice();
  world.communicator = std::make_shared<Alone>(2, 3);
  const Stages stages = ReferenceStages(job.strategy);
  ASSERT_TRUE(ShardModel(model, {}, stages, job, world).ok());
  const auto embed = Find(model, "embed.weight");
  EXPECT_TRUE(embed->value.is_meta());
  EXPECT_EQ(embed->value.sizes(), at::IntArrayRef({1, 2}));  // 2 + 2 + 1 rows
  EXPECT_EQ(embed->placements, std::vector<Placement>{Placement::Shard(0)});
  EXPECT_EQ(Find(model, "block.0.scale")->placements,
            std::vector<Placement>{Placement::Replicate()});
  EXPECT_EQ(bias->placements, std::vector<Placement>{Placement::Replicate()});

  ASSERT_TRUE(MaterializeMeta(model, world).ok());
  EXPECT_FALSE(model.HasMeta());
  for (const auto& [name, slot] : model.Named()) {
    EXPECT_EQ(slot->identity, identities.at(name)) << name;
    EXPECT_EQ(slot->value.sizes(), at::IntArrayRef(slot->shard.local_shape)) << name;
    EXPECT_EQ(slot->value.scalar_type(), slot->spec.dtype) << name;
    if (slot != bias) {
      EXPECT_EQ(slot->content, SlotContent::kUndefined) << name;
    }
  }
  EXPECT_EQ(Find(model, "embed.weight"), Find(model, "head.weight"));
  EXPECT_EQ(embed->spec.attributes.at("sharded_by"), "me");
  EXPECT_EQ(bias->value.const_data_ptr(), memory);
  EXPECT_EQ(bias->content, SlotContent::kDefined);
  EXPECT_TRUE(at::equal(bias->value, at::full({3}, 42.0f)));
}

TEST(ShardModel, CutsWhatEveryRankLoadedAndEndsItsViewOfTheSource) {
  const ModelSpec spec = {.tensors = {{.name = "w", .shape = {5, 2}}, {.name = "s", .shape = {}}}};
  for (int64_t rank = 0; rank < 4; ++rank) {
    for (const Strategy strategy : {Strategy::kPlain, Strategy::kRank0Broadcast}) {
      Model model = Build(spec);
      KeyMatch keys;
      const at::Tensor full = at::arange(10, at::kFloat).view({5, 2});
      const auto w = Find(model, "w");
      w->value = full;
      w->content = SlotContent::kDefined;
      keys.loads = {{w, {{"w", 0, 60}}}};
      Job job;
      job.strategy = strategy;
      job.mesh = {{{"dp_shard", 4}}};
      World world;
      world.device = MakeHostDevice();
      world.communicator = std::make_shared<Alone>(rank, 4);
      ASSERT_TRUE(ShardModel(model, keys, ReferenceStages(strategy), job, world).ok());
      const IndexRange range = ChunkOf(5, 4, rank);
      EXPECT_EQ(w->value.size(0), range.size());
      EXPECT_EQ(w->value.is_meta(), strategy == Strategy::kRank0Broadcast);
      EXPECT_EQ(w->content, w->value.is_meta() ? SlotContent::kNone : SlotContent::kDefined);
      if (strategy == Strategy::kPlain) {
        EXPECT_TRUE(at::equal(w->value, full.slice(0, range.begin, range.end)));
        EXPECT_NE(w->value.const_data_ptr(), full.const_data_ptr());
      }
    }
  }
}

}  // namespace
}  // namespace shardproof
