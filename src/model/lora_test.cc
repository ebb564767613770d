// Which layers get an adapter and of what rank, as PEFT does it, and what is refused.
#include "src/model/lora.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

namespace shardproof {
namespace {

using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Shapes = std::map<std::string, std::vector<int64_t>>;

constexpr const char* kOrigin = "adapter_config.json";

ModelSpec SmallLlama() {
  const ordered_json config = {{"architectures", {"LlamaForCausalLM"}},
                               {"vocab_size", 11},
                               {"hidden_size", 8},
                               {"intermediate_size", 12},
                               {"num_hidden_layers", 2},
                               {"num_attention_heads", 4}};
  return SpecFromConfig(config.dump(), "config.json").value();
}

std::string Config(const ordered_json& more) {
  ordered_json config = {{"peft_type", "LORA"}, {"r", 4}};
  for (const auto& [name, value] : more.items()) config[name] = value;
  return config.dump();
}

Result<ModelSpec> Adapted(const ordered_json& more) {
  SP_ASSIGN(const LoraSpec lora, LoraFromConfig(Config(more), kOrigin));
  return WithAdapter(SmallLlama(), lora, kOrigin);
}

std::string RefusalOf(const ordered_json& more) {
  const auto adapted = Adapted(more);
  if (adapted.ok()) return "accepted";
  EXPECT_EQ(adapted.error().code, ErrorCode::kBadInput);
  return adapted.error().message;
}

/// The shapes of every lora_A, by module.
Shapes RanksOf(const ordered_json& more) {
  Shapes ranks;
  const auto adapted = Adapted(more);
  EXPECT_TRUE(adapted.ok()) << adapted.error().message;
  if (!adapted.ok()) return ranks;
  for (const TensorSpec& tensor : adapted.value().tensors) {
    const size_t part = tensor.name.find(".lora_A.");
    if (part != std::string::npos) ranks[tensor.name.substr(0, part)] = tensor.shape;
  }
  return ranks;
}

const TensorSpec* Find(const ModelSpec& model, const std::string& name) {
  for (const TensorSpec& tensor : model.tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

TEST(WithAdapter, FreezesTheModelAndTrainsAAndB) {
  const auto adapted = Adapted({{"target_modules", {"q_proj"}}});
  ASSERT_TRUE(adapted.ok()) << adapted.error().message;
  const std::string module = "model.layers.1.self_attn.q_proj";
  for (const TensorSpec& tensor : adapted.value().tensors)
    EXPECT_EQ(tensor.requires_grad, tensor.adapter) << tensor.name;
  EXPECT_EQ(Find(adapted.value(), module + ".weight"), nullptr);
  const TensorSpec* base = Find(adapted.value(), module + ".base_layer.weight");
  ASSERT_NE(base, nullptr);
  ASSERT_EQ(base->stored.size(), 1u);
  EXPECT_EQ(base->stored[0][0].key, module + ".weight");
  const TensorSpec* a = Find(adapted.value(), module + ".lora_A.default.weight");
  const TensorSpec* b = Find(adapted.value(), module + ".lora_B.default.weight");
  ASSERT_TRUE(a != nullptr && b != nullptr);
  EXPECT_THAT(a->shape, ElementsAre(4, 8));
  EXPECT_THAT(b->shape, ElementsAre(8, 4));
  EXPECT_EQ(a->init, InitialValue::kUniform);
  EXPECT_EQ(b->init, InitialValue::kZeros);
  EXPECT_EQ(a->stored.at(0).at(0).key, "base_model.model." + module + ".lora_A.weight");
}

TEST(WithAdapter, TheFirstPatternThatFitsSaysTheRank) {
  const Shapes ranks =
      RanksOf({{"target_modules", {"q_proj", "v_proj"}},
               {"rank_pattern", {{"layers.1.self_attn.q_proj", 2}, {"q_proj", 3}}}});
  EXPECT_EQ(ranks, (Shapes{{"model.layers.0.self_attn.q_proj", {3, 8}},
                           {"model.layers.1.self_attn.q_proj", {2, 8}},
                           {"model.layers.0.self_attn.v_proj", {4, 8}},
                           {"model.layers.1.self_attn.v_proj", {4, 8}}}));
  EXPECT_EQ(RanksOf({{"target_modules", {"q_proj"}},
                     {"rank_pattern", {{"q_proj", 3}, {"layers.1.self_attn.q_proj", 2}}}}),
            (Shapes{{"model.layers.0.self_attn.q_proj", {3, 8}},
                    {"model.layers.1.self_attn.q_proj", {3, 8}}}));
}

TEST(WithAdapter, ANameIsAWholeModuleOrTheEndOfOneFromADotOn) {
  EXPECT_EQ(RanksOf({{"target_modules", {"layers.0.mlp.down_proj"}}}),
            (Shapes{{"model.layers.0.mlp.down_proj", {4, 12}}}));
  EXPECT_THAT(RefusalOf({{"target_modules", {"_proj"}}}), HasSubstr("are no module of the model"));
  EXPECT_THAT(RefusalOf({{"target_modules", {"mlp"}}}), HasSubstr("expected linear layers only"));
}

TEST(WithAdapter, AllLinearIsAllButTheHeadAndWhatIsExcluded) {
  EXPECT_EQ(RanksOf({{"target_modules", "all-linear"}}).size(), 2u * 7);
  EXPECT_EQ(RanksOf({{"target_modules", "all-linear"}}).count("lm_head"), 0u);
  const Shapes ranks = RanksOf({{"target_modules", "all-linear"},
                                {"exclude_modules", {"up_proj", "layers.1.mlp.down_proj"}}});
  EXPECT_EQ(ranks.size(), 2u * 7 - 3);
  EXPECT_EQ(ranks.count("model.layers.0.mlp.down_proj"), 1u);
}

TEST(WithAdapter, AModuleThatIsTrainedWholeIsThereTwice) {
  const auto adapted = Adapted({{"target_modules", {"q_proj"}}, {"modules_to_save", {"lm_head"}}});
  ASSERT_TRUE(adapted.ok()) << adapted.error().message;
  const TensorSpec* original = Find(adapted.value(), "lm_head.original_module.weight");
  const TensorSpec* copy = Find(adapted.value(), "lm_head.modules_to_save.default.weight");
  ASSERT_TRUE(original != nullptr && copy != nullptr);
  EXPECT_FALSE(original->requires_grad);
  EXPECT_TRUE(copy->requires_grad);
  EXPECT_FALSE(original->adapter);
  EXPECT_TRUE(copy->adapter);
  EXPECT_EQ(copy->stored.at(0).at(0).key, "base_model.model.lm_head.weight");
  EXPECT_THAT(RefusalOf({{"target_modules", {"lm_head"}}, {"modules_to_save", {"head"}}}),
              HasSubstr("expected one of them"));
}

TEST(WithAdapter, MagnitudesAreOneForEachRow) {
  const auto adapted = Adapted({{"target_modules", {"down_proj"}}, {"use_dora", true}});
  ASSERT_TRUE(adapted.ok()) << adapted.error().message;
  const TensorSpec* magnitudes =
      Find(adapted.value(), "model.layers.0.mlp.down_proj.lora_magnitude_vector.default.weight");
  ASSERT_NE(magnitudes, nullptr);
  EXPECT_THAT(magnitudes->shape, ElementsAre(8));
  EXPECT_EQ(magnitudes->init, InitialValue::kOnes);
}

TEST(LoraFromConfig, RefusesWhatMayMeanOtherTensors) {
  EXPECT_THAT(RefusalOf({{"peft_type", "IA3"}, {"target_modules", {"q_proj"}}}),
              HasSubstr("'peft_type'"));
  EXPECT_THAT(RefusalOf({{"bias", "all"}, {"target_modules", {"q_proj"}}}), HasSubstr("'bias'"));
  EXPECT_THAT(RefusalOf({{"target_modules", {"q_proj"}}, {"r", 0}}), HasSubstr("'r'"));
  EXPECT_THAT(RefusalOf({{"target_modules", {"q_proj"}}, {"layer_replication", {{0, 1}}}}),
              HasSubstr("layer_replication"));
  EXPECT_THAT(RefusalOf(ordered_json::object()), HasSubstr("'target_modules'"));
}

TEST(LoraToConfig, IsReadBackAsItWas) {
  for (const std::vector<std::string>& targets :
       {std::vector<std::string>{"q_proj", "v_proj"}, {kAllLinear}}) {
    const auto read = LoraFromConfig(LoraToConfig({.rank = 5, .targets = {targets}}), kOrigin);
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read.value().rank, 5);
    EXPECT_EQ(read.value().targets.names, targets);
  }
}

}  // namespace
}  // namespace shardproof
