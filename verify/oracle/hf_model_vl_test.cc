#include "verify/oracle/fixture_models.h"

namespace shardproof::oracle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kText[] = R"("vocab_size": 11, "hidden_size": 8, "intermediate_size": 12,
    "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2)";
constexpr char kVision[] = R"("depth": 1, "hidden_size": 16, "intermediate_size": 7,
    "num_heads": 2, "out_hidden_size": 8, "patch_size": 3)";

std::string Qwen25(const std::string& text, const std::string& more = "",
                   const std::string& vision = "") {
  return fmt::format(
      R"({{"architectures": ["Qwen2_5_VLForConditionalGeneration"], "text_config": {{{}{}}},
          "vision_config": {{{}{}}}{}}})",
      kText, text, kVision, vision, more);
}

std::string Qwen3Vl(const std::string& text, const std::string& more = "",
                    const std::string& vision = "") {
  return fmt::format(
      R"({{"architectures": ["Qwen3VLForConditionalGeneration"],
          "text_config": {{{}, "head_dim": 6{}}}, "vision_config": {{{}{}}}{}}})",
      kText, text, kVision, vision, more);
}

TEST(DeclareQwen25Vl, HasATowerAndADecoderThatCheckpointsNameOtherwise) {
  const auto model = Declare(Qwen25(""));
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto shapes = Shapes(model.value());
  EXPECT_EQ(shapes.size(), 1 + 2 + (2 + 4 + 6) + 5 + 1 + (7 + 3 + 2) + 1 + 2 + 1u);
  EXPECT_EQ(shapes.at("model.visual.patch_embed.proj.weight"), "16 3 2 3 3 ");
  EXPECT_EQ(shapes.at("model.visual.blocks.0.attn.qkv.bias"), "48 ");
  EXPECT_EQ(shapes.at("model.visual.blocks.0.mlp.down_proj.weight"), "16 7 ");
  EXPECT_EQ(shapes.at("model.visual.merger.mlp.0.weight"), "64 64 ");
  EXPECT_EQ(shapes.at("model.visual.merger.mlp.2.weight"), "8 64 ");
  EXPECT_EQ(shapes.at("model.visual.rotary_pos_emb.inv_freq"), "2 ");
  EXPECT_EQ(shapes.at("model.language_model.layers.0.self_attn.k_proj.bias"), "4 ");
  EXPECT_FALSE(shapes.contains("model.language_model.layers.0.self_attn.o_proj.bias"));
  const auto key = [&](const std::string& name) {
    const auto& stored = Find(model.value(), name).stored;
    return stored.size() == 1 && stored[0].size() == 1 ? stored[0][0].key : "";
  };
  EXPECT_EQ(key("model.language_model.norm.weight"), "model.norm.weight");
  EXPECT_EQ(key("model.visual.merger.ln_q.weight"), "visual.merger.ln_q.weight");
  EXPECT_EQ(key("lm_head.weight"), "");
  EXPECT_TRUE(Find(model.value(), "model.visual.rotary_pos_emb.inv_freq").stored.empty());
  EXPECT_EQ(Find(model.value(), "model.visual.merger.ln_q.weight").init, "ones");
}

TEST(DeclareQwen25Vl, RotaryModulesHaveTheirOwnThetaAndDim) {
  const auto model = Declare(Qwen25(
      R"(, "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 1]}, "rope_theta": 777)", "",
      R"(, "rope_parameters": {"rope_type": "axial", "rope_theta": 5})"));
  ASSERT_TRUE(model.ok()) << model.error().message;
  const RopeCase text = *Find(model.value(), "model.language_model.rotary_emb.inv_freq").rope;
  EXPECT_EQ(text.type, "default");
  EXPECT_EQ(text.theta, 777);
  EXPECT_EQ(text.dim, 2);
  const RopeCase vision = *Find(model.value(), "model.visual.rotary_pos_emb.inv_freq").rope;
  EXPECT_EQ(vision.type, "default");
  EXPECT_EQ(vision.theta, 5);
  EXPECT_EQ(vision.dim, 4);
  const auto silent = Declare(Qwen25(""));
  EXPECT_EQ(Find(silent.value(), "model.language_model.rotary_emb.inv_freq").rope->theta, 1e6);
  EXPECT_EQ(Find(silent.value(), "model.visual.rotary_pos_emb.inv_freq").rope->theta, 1e4);
}

TEST(DeclareQwen25Vl, TheTextMayStandAtTopLevel) {
  const auto flat = Declare(fmt::format(
      R"({{"model_type": "qwen2_5_vl", {}, "vision_config": {{{}}}, "initializer_range": 0.5,
          "torch_dtype": "float16", "partial_rotary_factor": 0.5,
          "rope_scaling": {{"type": "linear", "factor": 2}}}})",
      kText, kVision));
  ASSERT_TRUE(flat.ok()) << flat.error().message;
  EXPECT_EQ(Shapes(flat.value()), Shapes(Declare(Qwen25("")).value()));
  EXPECT_DOUBLE_EQ(flat.value().init_scale, 0.5 * std::sqrt(3.0));
  EXPECT_EQ(flat.value().tensors[0].dtype, "F16");
}

TEST(DeclareQwen25Vl, TieDtypeAndScaleAreLookedForInBothPlaces) {
  const std::string tie = R"(, "tie_word_embeddings": true)";
  EXPECT_TRUE(Declare(Qwen25("")).value().ties.empty());
  EXPECT_THAT(
      Declare(Qwen25(tie)).value().ties,
      ElementsAre(ElementsAre("model.language_model.embed_tokens.weight", "lm_head.weight")));
  EXPECT_EQ(Declare(Qwen25("", tie)).value().ties.size(), 1u);
  const auto dtype = [](const std::string& text, const std::string& more) {
    return Declare(Qwen25(text, more)).value().tensors[0].dtype;
  };
  EXPECT_EQ(dtype(R"(, "dtype": "bfloat16")", ""), "BF16");
  EXPECT_EQ(dtype(R"(, "dtype": "bfloat16")", R"(, "dtype": "float16")"), "F16");
  EXPECT_EQ(dtype("", ""), "F32");
  EXPECT_DOUBLE_EQ(Declare(Qwen25(R"(, "initializer_range": 0.1)", R"(, "initializer_range": 9)"))
                       .value()
                       .init_scale,
                   0.1 * std::sqrt(3.0));
}

TEST(DeclareQwen25Vl, RefusesWhatCannotBe) {
  EXPECT_THAT(ErrorOf(Qwen25(R"(, "head_dim": 6)")),
              HasSubstr("text_config: head_dim: expected hidden_size / num_attention_heads = 2, "
                        "found 6"));
  EXPECT_THAT(ErrorOf(Qwen25("", "", R"(, "num_position_embeddings": 4, "in_channels": 0)")),
              HasSubstr("vision_config: in_channels: expected an integer from 1"));
  EXPECT_THAT(ErrorOf(Qwen25("", "", R"(, "rope_parameters": {"rope_type": "yarn"})")),
              HasSubstr("vision_config: rope_parameters: rope_type: expected axial"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "qwen2_5_vl", "text_config": 3})"),
              HasSubstr("text_config: expected an object"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "qwen2_5_vl"})"), HasSubstr("vocab_size"));
  EXPECT_THAT(ErrorOf(fmt::format(R"({{"model_type": "qwen2_5_vl", "text_config": {{{}}},
                                      "vision_config": {{"hidden_size": 15}}}})",
                                  kText)),
              HasSubstr("a multiple of num_heads 16"));
  EXPECT_THAT(ErrorOf(fmt::format(
                  R"({{"model_type": "qwen2_5_vl", "text_config": {{{}}}, "vision_config":
                      {{"hidden_size": 16777216, "spatial_merge_size": 256}}}})",
                  kText)),
              HasSubstr("fewer than 2^56 elements, found 'model.visual.merger.mlp.0.weight'"));
}

TEST(DeclareQwen3Vl, HasATowerWithSideExits) {
  const auto model = Declare(Qwen3Vl("", "", R"(, "num_position_embeddings": 9,
      "deepstack_visual_indexes": [0, 0])"));
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto shapes = Shapes(model.value());
  EXPECT_EQ(shapes.size(), 3 + 2 + 12 + 6 + 2 * 6 + 1 + (4 + 2 + 3 + 2) + 1 + 2 + 1u);
  EXPECT_EQ(shapes.at("model.visual.patch_embed.proj.bias"), "16 ");
  EXPECT_EQ(shapes.at("model.visual.pos_embed.weight"), "9 16 ");
  EXPECT_EQ(shapes.at("model.visual.blocks.0.mlp.linear_fc1.weight"), "7 16 ");
  EXPECT_EQ(shapes.at("model.visual.merger.norm.bias"), "16 ");
  EXPECT_EQ(shapes.at("model.visual.deepstack_merger_list.1.norm.weight"), "64 ");
  EXPECT_EQ(shapes.at("model.visual.deepstack_merger_list.1.linear_fc2.weight"), "8 64 ");
  EXPECT_EQ(shapes.at("model.language_model.layers.0.self_attn.q_norm.weight"), "6 ");
  EXPECT_EQ(Find(model.value(), "model.visual.merger.norm.bias").init, "zeros");
  EXPECT_EQ(Find(model.value(), "model.visual.merger.norm.weight").init, "ones");
  EXPECT_TRUE(Find(model.value(), "model.visual.merger.norm.weight").stored.empty());
  EXPECT_EQ(Find(model.value(), "model.language_model.rotary_emb.inv_freq").rope->theta, 5e5);
}

TEST(DeclareQwen3Vl, WhatIsLeftOutIsTheClasssConstant) {
  const auto model = Declare(fmt::format(
      R"({{"model_type": "qwen3_vl", "text_config": {{{}, "head_dim": 2,
          "attention_bias": true}}}})",
      kText));
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto shapes = Shapes(model.value());
  EXPECT_EQ(shapes.at("model.visual.patch_embed.proj.weight"), "1152 3 2 16 16 ");
  EXPECT_EQ(shapes.at("model.visual.pos_embed.weight"), "2304 1152 ");
  EXPECT_TRUE(shapes.contains("model.visual.blocks.26.norm2.bias"));
  EXPECT_FALSE(shapes.contains("model.visual.blocks.27.norm2.bias"));
  EXPECT_TRUE(shapes.contains("model.visual.deepstack_merger_list.2.norm.weight"));
  EXPECT_TRUE(shapes.contains("model.language_model.layers.0.self_attn.o_proj.bias"));
}

TEST(DeclareQwen3Vl, OnlyTheTopLevelSaysThatItIsTied) {
  const std::string tie = R"(, "tie_word_embeddings": true)";
  EXPECT_TRUE(Declare(Qwen3Vl(tie)).value().ties.empty());
  EXPECT_EQ(Declare(Qwen3Vl("", tie)).value().ties.size(), 1u);
}

TEST(DeclareQwen3Vl, RefusesWhatCannotBe) {
  EXPECT_THAT(ErrorOf(fmt::format(R"({{"model_type": "qwen3_vl", {}}})", kText)),
              HasSubstr("text_config: expected an object, found nothing"));
  EXPECT_THAT(ErrorOf(Qwen3Vl("", "", R"(, "deepstack_visual_indexes": [-1])")),
              HasSubstr("deepstack_visual_indexes[0]"));
  EXPECT_THAT(ErrorOf(Qwen3Vl(R"(, "rope_parameters": {"rope_type": "mrope"})")),
              HasSubstr("'mrope'"));
}

}  // namespace
}  // namespace shardproof::oracle
