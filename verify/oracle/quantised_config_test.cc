#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "verify/oracle/fixture_models.h"

namespace shardproof::oracle {
namespace {

using ::testing::HasSubstr;

std::string Fp8(const std::string& more) {
  return fmt::format(R"(, "quantization_config": {{"quant_method": "fp8"{}}})", more);
}

std::string Int8(const std::string& weights, const std::string& group, const std::string& more) {
  return fmt::format(
      R"(, "quantization_config": {{"quant_method": "compressed-tensors", "version": "0.20.0",
      "format": "int-quantized", "quantization_status": "compressed", "sparsity_config": {{}},
      "config_groups": {{"group_0": {{"targets": ["Linear"],
          "weights": {{"num_bits": 8, "type": "int", "strategy": "channel"{}}},
          "input_activations": {{"num_bits": 8, "strategy": "token", "dynamic": true}}{}}}}}{}}})",
      weights, group, more);
}

/// dtype, shape, requires_grad and init of a tensor, as text.
std::string Line(const DeclaredModel& model, const std::string& name) {
  const TensorCase& tensor = Find(model, name);
  return fmt::format("{} {}{} {}", tensor.dtype, Shapes(model).at(name), tensor.requires_grad,
                     tensor.init);
}

/// Whether the model has scales beside a layer's weight.
bool IsQuantised(const DeclaredModel& model, const std::string& layer) {
  const auto shapes = Shapes(model);
  return shapes.contains(layer + ".weight_scale_inv") || shapes.contains(layer + ".weight_scale");
}

std::string Qwen3Moe(const std::string& more) {
  return fmt::format(R"({{"model_type": "qwen3_moe", {}, "num_key_value_heads": 4,
      "num_experts": 2, "moe_intermediate_size": 8, "dtype": "bfloat16"{}}})",
                     kSizes, more);
}

TEST(QuantisedConfig, Fp8LayersAreCodesAndAScaleForEachBlock) {
  const auto read = Declare(
      Llama(R"(, "dtype": "float16", "mlp_bias": true)" + Fp8(R"(, "weight_block_size": [5, 3])")));
  ASSERT_TRUE(read.ok()) << read.error().message;
  const DeclaredModel& model = read.value();
  const std::string mlp = "model.layers.0.mlp.";
  EXPECT_EQ(Line(model, mlp + "gate_proj.weight"), "F8_E4M3 12 8 true uniform");
  EXPECT_EQ(Line(model, mlp + "gate_proj.weight_scale_inv"), "F32 3 3 true ones");
  EXPECT_EQ(Line(model, mlp + "gate_proj.bias"), "F16 12 true zeros");
  EXPECT_EQ(Line(model, mlp + "down_proj.weight_scale_inv"), "F32 2 4 true ones");
  EXPECT_EQ(Line(model, "lm_head.weight"), "F16 11 8 true uniform");
  EXPECT_EQ(Line(model, "model.embed_tokens.weight"), "F16 11 8 true uniform");
  EXPECT_EQ(model.tensors.size(), 14u + 7 + 3);
  EXPECT_TRUE(Find(model, mlp + "gate_proj.weight_scale_inv").stored.empty());
}

TEST(QuantisedConfig, BlocksAre128UnlessStated) {
  std::string config = Llama(Fp8(""));
  config.replace(config.find("\"intermediate_size\": 12") + 21, 2, "300");
  const auto model = Declare(config);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(Shapes(model.value()).at("model.layers.0.mlp.up_proj.weight_scale_inv"), "3 1 ");
}

TEST(QuantisedConfig, ExpertsHavePackedScalesOfKeysOfTheirOwn) {
  const auto read = Declare(Qwen3Moe(Fp8(R"(, "weight_block_size": [4, 3])")));
  ASSERT_TRUE(read.ok()) << read.error().message;
  const DeclaredModel& model = read.value();
  const std::string experts = "model.layers.0.mlp.experts.";
  EXPECT_EQ(Line(model, experts + "gate_up_proj"), "F8_E4M3 2 16 8 true uniform");
  EXPECT_EQ(Line(model, experts + "gate_up_proj_scale_inv"), "F32 2 4 3 true ones");
  EXPECT_EQ(Line(model, experts + "down_proj_scale_inv"), "F32 2 2 3 true ones");
  EXPECT_EQ(Line(model, "model.layers.0.mlp.gate.weight"), "BF16 2 8 true uniform");
  const auto& way = Find(model, experts + "gate_up_proj_scale_inv").stored.at(0);
  ASSERT_EQ(way.size(), 4u);
  EXPECT_EQ(way[1].key, experts + "0.up_proj.weight_scale_inv");
  EXPECT_EQ(way[2].key, experts + "1.gate_proj.weight_scale_inv");
  EXPECT_EQ(way[2].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_THAT(ErrorOf(Qwen3Moe(Fp8(R"(, "weight_block_size": [3, 3])"))),
              HasSubstr("moe_intermediate_size: expected a multiple of weight_block_size[0] 3"));
  EXPECT_EQ(ErrorOf(Qwen3Moe(Fp8(R"(, "weight_block_size": [3, 3],
      "modules_to_not_convert": ["lm_head", "experts"])"))),
            "")
      << "no expert is quantised";
}

TEST(QuantisedConfig, Int8LayersAreCodesAndAScaleForEachRow) {
  const auto read = Declare(Qwen3(R"(, "dtype": "bfloat16", "attention_bias": true)" +
                                  Int8("", "", R"(, "ignore": ["lm_head"])")));
  ASSERT_TRUE(read.ok()) << read.error().message;
  const DeclaredModel& model = read.value();
  const std::string query = "model.layers.0.self_attn.q_proj.";
  EXPECT_EQ(Line(model, query + "weight"), "I8 24 8 false uniform");
  EXPECT_EQ(Line(model, query + "weight_scale"), "BF16 24 1 false ones");
  EXPECT_EQ(Line(model, query + "bias"), "BF16 24 false zeros");
  EXPECT_EQ(Line(model, "lm_head.weight"), "BF16 11 8 true uniform");
  EXPECT_EQ(Line(model, "model.norm.weight"), "BF16 8 true ones");
}

TEST(QuantisedConfig, NamesAreLookedForAsTransformersDoes) {
  const auto keeps = [](const std::string& name, const std::string& layer, bool fp8) {
    std::string config = Llama(fp8 ? Fp8(fmt::format(R"(, "modules_to_not_convert": ["{}"])", name))
                                   : Int8("", "", fmt::format(R"(, "ignore": ["{}"])", name)));
    config.replace(config.find("\"num_hidden_layers\": 1") + 22, 0, "2");  // 12 layers
    const auto model = Declare(config);
    EXPECT_TRUE(model.ok()) << model.error().message;
    return model.ok() && !IsQuantised(model.value(), layer);
  };
  const std::string up = "model.layers.1.mlp.up_proj";
  for (const char* name :
       {"model.layers.1.mlp.up_proj", "model.layers.1.mlp", "model", "model.", "up_proj", "proj",
        "mlp.up_proj", "model.layers.1.", "model.layers.1", "model_layers", ""}) {
    const bool as_regex = std::string(name) != "model_layers";
    EXPECT_EQ(keeps(name, up, true), as_regex) << name;
    EXPECT_EQ(keeps(name, up, false), name == up) << name;
  }
  EXPECT_FALSE(keeps("model.layers.1", "model.layers.11.mlp.up_proj", true));
  EXPECT_TRUE(keeps("model.layers.1.", "model.layers.11.mlp.up_proj", true)) << "any character";
  EXPECT_FALSE(keeps("model.layers.1.mlp.up", up, true)) << "no whole name";
  EXPECT_FALSE(keeps("layers.1", up, true)) << "neither the beginning nor the end";
  EXPECT_FALSE(keeps("up_proj.weight", up, true));
}

TEST(QuantisedConfig, TheOutputLayerIsKeptByDefaultOrByName) {
  const auto head = [](const std::string& more) {
    const auto model = Declare(Llama(more));
    EXPECT_TRUE(model.ok()) << model.error().message;
    return model.ok() && IsQuantised(model.value(), "lm_head");
  };
  EXPECT_FALSE(head(Fp8("")));
  EXPECT_FALSE(head(Fp8(R"(, "modules_to_not_convert": null)")));
  EXPECT_TRUE(head(Fp8(R"(, "modules_to_not_convert": [])")));
  EXPECT_TRUE(head(Int8("", "", "")));
  EXPECT_TRUE(head(Int8("", "", R"(, "ignore": ["head"])")));
  const std::string tied = R"(, "tie_word_embeddings": true)";
  EXPECT_FALSE(head(tied + Fp8("")));
  EXPECT_THAT(ErrorOf(Llama(tied + Fp8(R"(, "modules_to_not_convert": ["q_proj"])"))),
              HasSubstr("modules_to_not_convert: expected lm_head"));
  EXPECT_THAT(ErrorOf(Llama(tied + Int8("", "", ""))), HasSubstr("ignore: expected lm_head"));
}

TEST(QuantisedConfig, RefusesWhatWouldBeOtherTensors) {
  for (const auto& [more, said] : std::vector<std::pair<std::string, std::string>>{
           {R"("activation_scheme": "static")", "activation_scheme: expected 'dynamic'"},
           {R"("weight_block_size": null)", "weight_block_size: expected two integers"},
           {R"("weight_block_size": [8])", "weight_block_size: expected two integers"},
           {R"("weight_block_size": [8, 0])", "weight_block_size[1]"},
           {R"("weight_block_size": [8, 8.0])", "weight_block_size[1]"},
           {R"("weight_block_size": 8)", "weight_block_size"},
           {R"("dequantize": true)", "dequantize: expected false"},
           {R"("scale_fmt": "ue8m0")", "scale_fmt: expected 'float', found string 'ue8m0'"},
           {R"("expert_dtype": "fp4")", "expert_dtype: expected 'fp8'"},
           {R"("fmt": "e5m2")", "fmt: expected 'e4m3'"},
           {R"("modules_to_convert": ["embed_tokens"])", "modules_to_convert: expected none"},
           {R"("modules_to_not_convert": "lm_head")", "modules_to_not_convert"},
           {R"("modules_to_not_convert": ["lm_head", "a|b"])", "modules_to_not_convert[1]"},
           {R"("ignored_layers": ["lm_head"])", "ignored_layers"},
           {R"("new": 1)", "new: expected no field that is not known"}}) {
    EXPECT_THAT(ErrorOf(Llama(Fp8(", " + more))), HasSubstr(said)) << more;
  }
  for (const auto& [more, said] : std::vector<std::pair<std::string, std::string>>{
           {R"("dynamic": true)", "weights: dynamic: expected false"},
           {R"("symmetric": false)", "weights: symmetric: expected true"},
           {R"("group_size": 128)", "weights: group_size: expected none"},
           {R"("scale_dtype": "torch.float32")", "weights: scale_dtype: expected none"},
           {R"("new": 1)", "weights: new"}}) {
    EXPECT_THAT(ErrorOf(Llama(Int8(", " + more, "", ""))), HasSubstr(said)) << more;
  }
  for (const auto& [more, said] : std::vector<std::pair<std::string, std::string>>{
           {R"("format": "pack-quantized")", "group_0: format: expected 'int-quantized'"},
           {R"("output_activations": {})", "output_activations: expected none"}}) {
    EXPECT_THAT(ErrorOf(Llama(Int8("", ", " + more, ""))), HasSubstr(said)) << more;
  }
  for (const auto& [more, said] : std::vector<std::pair<std::string, std::string>>{
           {R"("kv_cache_scheme": {})", "kv_cache_scheme: expected none"},
           {R"("transform_config": {"a": 1})", "transform_config: expected an empty object"},
           {R"("dequantize": true)", "dequantize: expected false"},
           {R"("run_compressed": false)", "run_compressed: expected true"},
           {R"("ignore": ["lm_head", "re:.*"])", "ignore[1]: expected the name of a module"},
           {R"("ignore": ["Linear"])", "ignore[0]: expected the name of a module"},
           {R"("ignore": "lm_head")", "ignore"}}) {
    EXPECT_THAT(ErrorOf(Llama(Int8("", "", ", " + more))), HasSubstr(said)) << more;
  }
}

TEST(QuantisedConfig, RefusesOtherMethodsAndArchitectures) {
  EXPECT_THAT(ErrorOf(Llama(R"(, "quantization_config": {})")),
              HasSubstr("quant_method: expected fp8 or compressed-tensors"));
  EXPECT_THAT(ErrorOf(Llama(R"(, "quantization_config": {"quant_method": "awq"})")),
              HasSubstr("found string 'awq'"));
  EXPECT_THAT(ErrorOf(Llama(R"(, "quantization_config": "fp8")")), HasSubstr("an object"));
  EXPECT_EQ(ErrorOf(Llama(R"(, "quantization_config": null)")), "");
  EXPECT_THAT(ErrorOf(Qwen3Moe(Int8("", "", ""))), HasSubstr("quant_method: expected fp8 for"));
  EXPECT_THAT(ErrorOf(fmt::format(R"({{"model_type": "lfm2_moe"{}}})", Fp8(""))),
              HasSubstr("quantization_config: expected none: quantised weights of this "
                        "architecture are not known"));
}

TEST(QuantisedConfig, SurvivesEveryMutation) {
  std::mt19937 random(29);
  for (const std::string& config :
       {Qwen3Moe(Fp8(R"(, "weight_block_size": [4, 3], "modules_to_not_convert": ["lm_head"])")),
        Llama(Int8(R"(, "dynamic": false)", R"(, "format": "int-quantized")",
                   R"(, "ignore": ["lm_head"])"))}) {
    EXPECT_EQ(ErrorOf(config), "");
    const size_t begin = config.find("quantization_config");
    for (int round = 0; round < 500; ++round) {
      std::string mutant = config;
      for (uint32_t change = 0; change <= random() % 3; ++change) {
        mutant[begin + random() % (mutant.size() - begin)] =
            "0123456789-.eE\"[]{}, xn\\"[random() % 23];
      }
      ErrorOf(mutant);  // expects one line that names the file
    }
  }
}

}  // namespace
}  // namespace shardproof::oracle
