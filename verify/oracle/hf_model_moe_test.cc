#include <algorithm>

#include "verify/oracle/fixture_models.h"

namespace shardproof::oracle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Moe(const std::string& more) {
  return fmt::format(
      R"({{"architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 11, "hidden_size": 8,
          "intermediate_size": 12, "num_hidden_layers": 4, "num_attention_heads": 4,
          "num_key_value_heads": 2, "num_experts": 3, "moe_intermediate_size": 5{}}})",
      more);
}

std::string Lfm2(const std::string& more, const std::string& types = R"(["conv",
    "full_attention", "conv"])") {
  return fmt::format(
      R"({{"architectures": ["Lfm2MoeForCausalLM"], "vocab_size": 11, "hidden_size": 8,
          "intermediate_size": 12, "num_hidden_layers": 3, "num_attention_heads": 4,
          "num_key_value_heads": 2, "num_experts": 2, "moe_intermediate_size": 5,
          "num_dense_layers": 1, "layer_types": {}{}}})",
      types, more);
}

/// Layers with experts.
std::vector<int64_t> Sparse(const std::string& config) {
  const auto model = Declare(config);
  EXPECT_TRUE(model.ok()) << model.error().message;
  const auto shapes = Shapes(model.value());
  std::vector<int64_t> sparse;
  for (int64_t layer = 0; layer < 4; ++layer) {
    const std::string mlp = fmt::format("model.layers.{}.mlp.", layer);
    const bool has = shapes.contains(mlp + "experts.down_proj");
    EXPECT_NE(has, shapes.contains(mlp + "down_proj.weight"));
    if (has) sparse.push_back(layer);
  }
  return sparse;
}

TEST(DeclareQwen3Moe, ExpertsArePackedAndStoredOneByOne) {
  const auto model = Declare(Moe(R"(, "torch_dtype": "bfloat16")"));
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model.value().tensors.size(), 1 + 4 * 11 + 1 + 2 + 1u);
  const TensorCase& gate_up = Find(model.value(), "model.layers.2.mlp.experts.gate_up_proj");
  EXPECT_THAT(gate_up.shape, ElementsAre(3, 10, 8));
  EXPECT_EQ(gate_up.dtype, "BF16");
  EXPECT_EQ(gate_up.init, "uniform");
  ASSERT_EQ(gate_up.stored.size(), 1u);
  ASSERT_EQ(gate_up.stored[0].size(), 6u);
  EXPECT_EQ(gate_up.stored[0][0].key, "model.layers.2.mlp.experts.0.gate_proj.weight");
  EXPECT_EQ(gate_up.stored[0][1].key, "model.layers.2.mlp.experts.0.up_proj.weight");
  EXPECT_EQ(gate_up.stored[0][4].key, "model.layers.2.mlp.experts.2.gate_proj.weight");
  EXPECT_THAT(gate_up.stored[0][4].shape, ElementsAre(5, 8));
  const TensorCase& down = Find(model.value(), "model.layers.2.mlp.experts.down_proj");
  EXPECT_THAT(down.shape, ElementsAre(3, 8, 5));
  ASSERT_EQ(down.stored[0].size(), 3u);
  EXPECT_EQ(down.stored[0][1].key, "model.layers.2.mlp.experts.1.down_proj.weight");
  EXPECT_THAT(down.stored[0][1].shape, ElementsAre(8, 5));
  const auto shapes = Shapes(model.value());
  EXPECT_EQ(shapes.at("model.layers.0.mlp.gate.weight"), "3 8 ");
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.q_norm.weight"), "2 ");
  EXPECT_EQ(shapes.at("model.rotary_emb.inv_freq"), "1 ");
  EXPECT_FALSE(shapes.contains("model.layers.0.self_attn.q_proj.bias"));
}

TEST(DeclareQwen3Moe, WhichLayersHaveExperts) {
  EXPECT_THAT(Sparse(Moe("")), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Sparse(Moe(R"(, "decoder_sparse_step": 2)")), ElementsAre(1, 3));
  EXPECT_THAT(Sparse(Moe(R"(, "mlp_only_layers": [3, 0])")), ElementsAre(1, 2));
  EXPECT_THAT(Sparse(Moe(R"(, "mlp_only_layers": null, "decoder_sparse_step": 4)")),
              ElementsAre(3));
  EXPECT_THAT(Sparse(Moe(R"(, "num_local_experts": 0)")), ElementsAre());
}

TEST(DeclareQwen3Moe, RefusesWhatCannotBe) {
  EXPECT_EQ(ErrorOf(Moe(R"(, "mlp_only_layers": [4])")), "");  // of a model that was cut short
  EXPECT_THAT(ErrorOf(Moe(R"(, "mlp_only_layers": [-1])")),
              HasSubstr("mlp_only_layers[0]: expected an integer from 0 to 4096, found -1"));
  EXPECT_THAT(ErrorOf(Moe(R"(, "mlp_only_layers": 1)")), HasSubstr("an array of integers"));
  EXPECT_THAT(ErrorOf(Moe(R"(, "decoder_sparse_step": 0)")), HasSubstr("decoder_sparse_step"));
  EXPECT_THAT(ErrorOf(Moe(R"(, "num_local_experts": -1)")), HasSubstr("num_local_experts"));
  // 4 layers of 65536 x 3 fit; no limit on layers or experts alone would stop 64 of them.
  EXPECT_EQ(ErrorOf(Moe(R"(, "num_local_experts": 65536)")), "");
  std::string deep = Moe(R"(, "num_local_experts": 65536)");
  deep.replace(deep.find("\"num_hidden_layers\": 4"), 22, "\"num_hidden_layers\": 4096");
  EXPECT_THAT(ErrorOf(deep), HasSubstr("at most 1048576 tensors of experts in all layers, found "
                                       "805306368"));
  std::string wide = Moe(R"(, "num_local_experts": 65536)");
  wide.replace(wide.find("\"moe_intermediate_size\": 5"), 26,
               "\"moe_intermediate_size\": 16777216");
  wide.replace(wide.find("\"hidden_size\": 8"), 16, "\"hidden_size\": 16777216");
  EXPECT_THAT(ErrorOf(wide), HasSubstr("fewer than 2^56 elements, found 'model.layers.0.mlp"));
  std::string silent = Moe("");
  silent.replace(silent.find("\"num_key_value_heads\": 2,"), 25, "");
  EXPECT_EQ(ErrorOf(silent), "");  // 4, by the class and by the heads
}

TEST(DeclareLfm2Moe, LayersAreOfTwoKinds) {
  const auto model = Declare(Lfm2(""));
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto shapes = Shapes(model.value());
  EXPECT_EQ(shapes.at("model.layers.0.conv.conv.weight"), "8 1 3 ");
  EXPECT_EQ(shapes.at("model.layers.0.conv.in_proj.weight"), "24 8 ");
  EXPECT_EQ(shapes.at("model.layers.0.conv.out_proj.weight"), "8 8 ");
  EXPECT_EQ(shapes.at("model.layers.0.feed_forward.w2.weight"), "8 12 ");
  EXPECT_EQ(shapes.at("model.layers.1.self_attn.k_proj.weight"), "4 8 ");
  EXPECT_EQ(shapes.at("model.layers.1.self_attn.out_proj.weight"), "8 8 ");
  EXPECT_EQ(shapes.at("model.layers.1.self_attn.q_layernorm.weight"), "2 ");
  EXPECT_EQ(shapes.at("model.layers.1.feed_forward.gate.weight"), "2 8 ");
  EXPECT_EQ(shapes.at("model.embedding_norm.weight"), "8 ");
  EXPECT_EQ(shapes.at("model.pos_emb.original_inv_freq"), "1 ");
  EXPECT_EQ(Find(model.value(), "model.pos_emb.inv_freq").rope->theta, 1e6);
  EXPECT_EQ(shapes.size(), 1 + (3 + 3 + 2) + (6 + 4 + 2) + (3 + 4 + 2) + 1 + 2 + 1u);
  const TensorCase& packed =
      Find(model.value(), "model.layers.2.feed_forward.experts.gate_up_proj");
  EXPECT_EQ(packed.stored[0][0].key, "model.layers.2.feed_forward.experts.0.w1.weight");
  EXPECT_EQ(packed.stored[0][1].key, "model.layers.2.feed_forward.experts.0.w3.weight");
  EXPECT_EQ(Find(model.value(), "model.layers.2.feed_forward.experts.down_proj").stored[0][1].key,
            "model.layers.2.feed_forward.experts.1.w2.weight");
}

TEST(DeclareLfm2Moe, TheExpertBiasIsAPersistentBufferInF32) {
  const auto model = Declare(Lfm2(R"(, "dtype": "bfloat16")"));
  const TensorCase& bias = Find(model.value(), "model.layers.1.feed_forward.expert_bias");
  EXPECT_EQ(bias.kind, "buffer");
  EXPECT_TRUE(bias.persistent);
  EXPECT_FALSE(bias.requires_grad);
  EXPECT_EQ(bias.dtype, "F32");
  EXPECT_EQ(bias.init, "zeros");
  EXPECT_THAT(bias.shape, ElementsAre(2));
  const auto without = Declare(Lfm2(R"(, "use_expert_bias": false, "conv_bias": true)"));
  const auto shapes = Shapes(without.value());
  EXPECT_FALSE(shapes.contains("model.layers.1.feed_forward.expert_bias"));
  EXPECT_EQ(shapes.at("model.layers.0.conv.conv.bias"), "8 ");
  EXPECT_EQ(shapes.at("model.layers.0.conv.in_proj.bias"), "24 ");
}

TEST(DeclareLfm2Moe, IsTiedUnlessItSaysNo) {
  const auto tied = [](const std::string& more) {
    return !Declare(Lfm2(more)).value().ties.empty();
  };
  EXPECT_TRUE(tied(""));
  EXPECT_FALSE(tied(R"(, "tie_word_embeddings": false)"));
  EXPECT_TRUE(tied(R"(, "tie_word_embeddings": false, "tie_embedding": true)"));
  EXPECT_FALSE(tied(R"(, "tie_embedding": false)"));
}

TEST(DeclareLfm2Moe, RefusesLayerTypesThatDoNotFit) {
  EXPECT_THAT(ErrorOf(Lfm2("", R"(["conv", "conv"])")),
              HasSubstr("layer_types: expected 3 of conv and full_attention (num_hidden_layers), "
                        "found 2"));
  EXPECT_THAT(ErrorOf(Lfm2("", R"(["conv", "conv", "mamba"])")),
              HasSubstr("layer_types[2]: expected conv or full_attention, found 'mamba'"));
  EXPECT_THAT(ErrorOf(Lfm2("", R"(["conv", "conv", 1])")), HasSubstr("layer_types[2]"));
  EXPECT_THAT(ErrorOf(Lfm2("", "null")), HasSubstr("layer_types: expected 3"));
  EXPECT_THAT(ErrorOf(Lfm2("", R"("conv")")), HasSubstr("an array of strings"));
  EXPECT_THAT(ErrorOf(Lfm2(R"(, "conv_L_cache": 0)")), HasSubstr("conv_L_cache"));
}

}  // namespace
}  // namespace shardproof::oracle
