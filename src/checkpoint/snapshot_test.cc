#include "src/checkpoint/snapshot.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "src/model/rng.h"
#include "src/optim/optimizer.h"

namespace shardproof {
namespace {

std::string BytesOf(const Slot& slot) {
  std::string bytes(slot.value.nbytes(), '\0');
  slot.CopyOut(0, bytes.data(), bytes.size());
  return bytes;
}

/// A tie, strides, a tensor without elements; the first of them has an optimizer's state.
Model MakeModel(Device& device) {
  const ModelSpec spec{
      .tensors = {{.name = "a.weight", .shape = {4, 3}, .built_real = true},
                  {.name = "b.weight", .shape = {4, 3}, .built_real = true},
                  {.name = "t.weight", .shape = {4, 3}, .strides = {1, 4}, .built_real = true},
                  {.name = "none", .shape = {0, 3}, .built_real = true}},
      .ties = {{"a.weight", "b.weight"}},
      .init_scale = 1.0};
  Model model = BuildOnMeta(spec, 7, device).value();
  for (const auto& slot : model.Slots()) {
    slot->shard.local_shape = slot->spec.shape;
    slot->shard.runs = {{0, static_cast<uint64_t>(slot->value.numel()), 1, 0}};
  }
  model.optimizer = std::make_shared<Optimizer>(MakeOptimizer(model, Training()));
  Slot* first = nullptr;
  for (const auto& [name, slot] : model.Named()) {
    if (name == "a.weight") first = slot.get();
  }
  EXPECT_TRUE(MakeState(*first, *model.optimizer, device).ok());
  for (const auto& [key, part] : model.optimizer->state.at("a.weight").Parts())
    part->value.fill_(2);
  model.rng = MakeRng(3, 0);
  model.step = 5;
  return model;
}

/// Everything that a save reads, by name.
std::map<std::string, std::string> ContentOf(const Model& model) {
  std::map<std::string, std::string> content;
  for (const auto& [name, slot] : model.Named()) content[name] = BytesOf(*slot);
  for (const auto& [name, state] : model.optimizer->state) {
    for (const auto& [key, part] : state.Parts()) content[name + "." + key] = BytesOf(*part);
  }
  for (const ParameterGroup& group : model.optimizer->groups) {
    for (const auto& [key, value] : OptionsOf(group)) content["group " + key] += value + " ";
  }
  content["rng"] = BytesOf(*StateOfRng(*model.rng));
  content["step"] = std::to_string(model.step);
  return content;
}

TEST(TakeSnapshot, HoldsWhatWasThereWhateverComesAfter) {
  World world{.device = MakeHostDevice()};
  Model model = MakeModel(*world.device);
  const auto before = ContentOf(model);
  const Result<Model> taken = TakeSnapshot(model, world);
  ASSERT_TRUE(taken.ok());
  EXPECT_EQ(ContentOf(taken.value()), before);
  for (const auto& slot : model.Slots()) slot->value.fill_(9);
  for (const auto& [key, part] : model.optimizer->state.at("a.weight").Parts())
    part->value.fill_(9);
  for (ParameterGroup& group : model.optimizer->groups) group.settings.learning_rate = 9;
  DrawForStep(*model.rng);
  model.step = 9;
  EXPECT_EQ(ContentOf(taken.value()), before);
  EXPECT_NE(ContentOf(model), before);
}

TEST(TakeSnapshot, KeepsTiesAndWhoseTensorsTheGroupsHold) {
  World world{.device = MakeHostDevice()};
  const Model model = MakeModel(*world.device);
  const Model taken = std::move(TakeSnapshot(model, world)).value();
  std::map<std::string, std::shared_ptr<Slot>> named;
  for (const auto& [name, slot] : taken.Named()) named[name] = slot;
  ASSERT_EQ(named.size(), model.Named().size());
  EXPECT_EQ(named.at("a.weight"), named.at("b.weight"));
  EXPECT_EQ(named.at("a.weight")->names.size(), 2u);
  EXPECT_NE(named.at("a.weight"), named.at("t.weight"));
  for (const ParameterGroup& group : taken.optimizer->groups) {
    for (size_t i = 0; i < group.slots.size(); ++i) {
      EXPECT_TRUE(group.tensors[i].is_same(group.slots[i]->value));
    }
  }
}

}  // namespace
}  // namespace shardproof
