#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "verify/oracle/fixture_models.h"

namespace shardproof::oracle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DeclareModel, LlamaHasTheTensorsOfItsModules) {
  const auto model = Declare(Llama(R"(, "num_key_value_heads": 2)"));
  ASSERT_TRUE(model.ok()) << model.error().message;
  const std::map<std::string, std::string> expected = {
      {"model.embed_tokens.weight", "11 8 "},
      {"model.layers.0.self_attn.q_proj.weight", "8 8 "},
      {"model.layers.0.self_attn.k_proj.weight", "4 8 "},
      {"model.layers.0.self_attn.v_proj.weight", "4 8 "},
      {"model.layers.0.self_attn.o_proj.weight", "8 8 "},
      {"model.layers.0.mlp.gate_proj.weight", "12 8 "},
      {"model.layers.0.mlp.up_proj.weight", "12 8 "},
      {"model.layers.0.mlp.down_proj.weight", "8 12 "},
      {"model.layers.0.input_layernorm.weight", "8 "},
      {"model.layers.0.post_attention_layernorm.weight", "8 "},
      {"model.norm.weight", "8 "},
      {"model.rotary_emb.inv_freq", "1 "},
      {"model.rotary_emb.original_inv_freq", "1 "},
      {"lm_head.weight", "11 8 "}};
  EXPECT_EQ(Shapes(model.value()), expected);
  EXPECT_TRUE(model.value().ties.empty());
  EXPECT_DOUBLE_EQ(model.value().init_scale, 0.02 * std::sqrt(3.0));
}

TEST(DeclareModel, Qwen3HasHeadNormsAndItsOwnHeadDim) {
  const auto model = Declare(Qwen3(R"(, "tie_word_embeddings": true, "mlp_bias": true)"));
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto shapes = Shapes(model.value());
  EXPECT_EQ(shapes.size(), 16u);
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.q_proj.weight"), "24 8 ");
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.k_proj.weight"), "12 8 ");
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.o_proj.weight"), "8 24 ");
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.q_norm.weight"), "6 ");
  EXPECT_EQ(shapes.at("model.layers.0.self_attn.k_norm.weight"), "6 ");
  EXPECT_EQ(shapes.at("model.rotary_emb.inv_freq"), "3 ");
  EXPECT_THAT(model.value().ties,
              ElementsAre(ElementsAre("model.embed_tokens.weight", "lm_head.weight")));
}

TEST(DeclareModel, BiasesFollowTheirFields) {
  const auto model = Declare(Llama(R"(, "attention_bias": true, "mlp_bias": true)"));
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model.value().tensors.size(), 14u + 4 + 3);
  EXPECT_EQ(Find(model.value(), "model.layers.0.self_attn.o_proj.bias").init, "zeros");
  EXPECT_EQ(Find(model.value(), "model.layers.0.mlp.gate_proj.bias").shape[0], 12);
}

TEST(DeclareModel, KindsDtypesAndInitialValues) {
  const auto model = Declare(Llama(R"(, "torch_dtype": "bfloat16", "initializer_range": 0.5)"));
  ASSERT_TRUE(model.ok());
  const TensorCase& weight = Find(model.value(), "model.layers.0.mlp.up_proj.weight");
  EXPECT_EQ(weight.dtype, "BF16");
  EXPECT_EQ(weight.init, "uniform");
  EXPECT_EQ(Find(model.value(), "model.norm.weight").init, "ones");
  const TensorCase& buffer = Find(model.value(), "model.rotary_emb.original_inv_freq");
  EXPECT_EQ(buffer.kind, "buffer");
  EXPECT_FALSE(buffer.persistent);
  EXPECT_EQ(buffer.dtype, "F32");
  EXPECT_EQ(buffer.rope->theta, 10000.0);
  EXPECT_DOUBLE_EQ(model.value().init_scale, 0.5 * std::sqrt(3.0));
  const auto both = Declare(Llama(R"(, "torch_dtype": "bfloat16", "dtype": "float16")"));
  EXPECT_EQ(both.value().tensors[0].dtype, "F16");
}

TEST(DeclareModel, ArchitectureFallsBackToModelType) {
  EXPECT_EQ(ErrorOf(fmt::format(R"({{"model_type": "llama", {}}})", kSizes)), "");
  EXPECT_EQ(ErrorOf(fmt::format(R"({{"architectures": null, "model_type": "llama", {}}})", kSizes)),
            "");
  EXPECT_THAT(ErrorOf(fmt::format(R"({{"model_type": "gpt2", {}}})", kSizes)),
              HasSubstr("one of llama, qwen3, qwen3_moe, lfm2_moe, qwen2_5_vl, qwen3_vl ("));
  EXPECT_THAT(ErrorOf(R"({"architectures": ["GPT2LMHeadModel"]})"),
              HasSubstr("one of LlamaForCausalLM, Qwen3ForCausalLM, Qwen3MoeForCausalLM, "
                        "Lfm2MoeForCausalLM, Qwen2_5_VLForConditionalGeneration, "
                        "Qwen3VLForConditionalGeneration, found string 'GPT2LMHeadModel"));
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("found nothing"));
  EXPECT_THAT(ErrorOf(R"({"architectures": [1]})"), HasSubstr("architectures[0]"));
  EXPECT_THAT(ErrorOf(R"({"architectures": "LlamaForCausalLM"})"), HasSubstr("an array"));
}

TEST(DeclareModel, RefusesMissingWrongAndAbsurdSizes) {
  EXPECT_THAT(ErrorOf(R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 3})"),
              HasSubstr("hidden_size: expected an integer from 1"));
  const auto with = [](const std::string& field, const std::string& value) {
    std::string config = Llama("");
    const size_t at = config.find("\"" + field + "\": ") + field.size() + 4;
    const size_t end = config.find_first_of(",}", at);
    return ErrorOf(config.replace(at, end - at, value));
  };
  EXPECT_THAT(with("num_hidden_layers", "1000000000"), HasSubstr("found 1000000000"));
  EXPECT_THAT(with("num_hidden_layers", "-1"), HasSubstr("found -1"));
  EXPECT_THAT(with("vocab_size", "\"11\""), HasSubstr("vocab_size: expected an integer"));
  EXPECT_THAT(with("hidden_size", "8.5"), HasSubstr("hidden_size"));
  EXPECT_THAT(with("hidden_size", "9"), HasSubstr("a multiple of num_attention_heads 4"));
  EXPECT_THAT(with("hidden_size", "9223372036854775808"), HasSubstr("hidden_size"));
  EXPECT_THAT(with("num_attention_heads", "8"), HasSubstr("head_dim: expected an even number"));
  EXPECT_THAT(ErrorOf(Llama(R"(, "num_key_value_heads": 3)")), HasSubstr("a divisor"));
  EXPECT_THAT(ErrorOf(Llama(R"(, "attention_bias": 1)")), HasSubstr("true or false"));
  EXPECT_THAT(ErrorOf(Llama(R"(, "dtype": "int8")")), HasSubstr("float32, bfloat16"));
  EXPECT_THAT(ErrorOf(Llama(R"(, "vocab_size": 12)")), HasSubstr("'vocab_size' twice"));
  EXPECT_THAT(ErrorOf(Llama(R"(, "quantization_config": {})")), HasSubstr("quantization_config"));
  EXPECT_THAT(ErrorOf("not json"), HasSubstr("expected JSON"));
}

TEST(DeclareModel, Qwen3HasTheLibrarysHeadsUnlessItsConfigSaysOtherwise) {
  const auto qwen3 = [](const std::string& more) {
    return fmt::format(R"({{"architectures": ["Qwen3ForCausalLM"], {}{}}})", kSizes, more);
  };
  const auto rows = [&](const std::string& more) {
    return Find(Declare(qwen3(more)).value(), "model.layers.0.self_attn.k_proj.weight").shape.at(0);
  };
  EXPECT_EQ(rows(R"(, "num_key_value_heads": 2)"), 2 * 128);
  EXPECT_EQ(rows(R"(, "num_key_value_heads": 2, "head_dim": 6)"), 2 * 6);
  EXPECT_EQ(rows(R"(, "num_key_value_heads": null)"), 4 * 128);
  EXPECT_THAT(ErrorOf(qwen3(R"(, "head_dim": 2)")), HasSubstr("num_key_value_heads")) << "32 of 4";
}

TEST(DeclareModel, ASyntheticModelIsAsTheCaseSays) {
  Case test_case;
  test_case.model.tensors.resize(2);
  test_case.model.ties = {{"a", "b"}};
  const auto model = DeclareModel(test_case);
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model.value().tensors.size(), 2u);
  EXPECT_EQ(model.value().ties.size(), 1u);
  EXPECT_DOUBLE_EQ(model.value().init_scale, 0.02 * std::sqrt(3.0));
}

TEST(DeclareModel, SurvivesEveryMutationOfAGoodConfig) {
  const std::string vision = R"("vision_config": {"depth": 1, "hidden_size": 8, "num_heads": 2,
      "rope_parameters": {"rope_type": "axial", "rope_theta": 7}})";
  const std::string text = fmt::format(R"("text_config": {{{}, "num_key_value_heads": 2,
      "head_dim": 2, "rope_scaling": {{"type": "linear", "factor": 2}}}})",
                                       kSizes);
  const std::vector<std::string> good = {
      Qwen3(R"(, "rope_parameters": {"rope_type": "yarn", "factor": 4, "beta_fast": 8})"),
      Qwen3(R"(, "rope_scaling": {"type": "longrope", "short_factor": [1, 2, 3],
          "long_factor": [1, 2, 3]})"),
      fmt::format(R"({{"model_type": "qwen3_moe", {}, "num_experts": 3, "mlp_only_layers": [0],
          "decoder_sparse_step": 1}})",
                  kSizes),
      fmt::format(R"({{"model_type": "lfm2_moe", {}, "num_key_value_heads": 2, "num_experts": 3,
          "layer_types": ["conv"], "num_dense_layers": 0}})",
                  kSizes),
      fmt::format(R"({{"model_type": "qwen2_5_vl", {}, {}}})", text, vision),
      fmt::format(R"({{"model_type": "qwen3_vl", {}, {}}})", text, vision)};
  std::mt19937 random(23);
  for (const std::string& config : good) {
    EXPECT_EQ(ErrorOf(config), "") << config;
    for (int round = 0; round < 300; ++round) {
      std::string mutant = config;
      for (uint32_t change = 0; change <= random() % 3; ++change) {
        const char* bytes = "0123456789-.eE\"[]{}, xn";
        mutant[random() % mutant.size()] = bytes[random() % 22];
      }
      ErrorOf(mutant);  // expects one line that names the file
    }
  }
}

}  // namespace
}  // namespace shardproof::oracle
