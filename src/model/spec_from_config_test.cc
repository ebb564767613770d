// What a config.json says of a model, and which ones are refused.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "src/model/spec.h"

namespace shardproof {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json Llama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", 11},
          {"hidden_size", 8},
          {"intermediate_size", 12},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4}};
}

json With(json config, const json& more) {
  config.merge_patch(more);
  return config;
}

Result<ModelSpec> Spec(const json& config) { return SpecFromConfig(config.dump(), "config.json"); }

std::string Refusal(const std::string& text) {
  const auto spec = SpecFromConfig(text, "config.json");
  if (spec.ok()) return "accepted";
  EXPECT_EQ(spec.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(spec.error().message, HasSubstr("config.json"));
  EXPECT_EQ(spec.error().message.find('\n'), std::string::npos);
  return spec.error().message;
}
std::string Refusal(const json& config) { return Refusal(config.dump()); }

std::map<std::string, TensorSpec> ByName(const ModelSpec& spec) {
  std::map<std::string, TensorSpec> tensors;
  for (const TensorSpec& tensor : spec.tensors) tensors.emplace(tensor.name, tensor);
  return tensors;
}

TEST(SpecFromConfig, LlamaByItsDefaults) {
  const auto spec = Spec(Llama());
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec.value().tensors.size(), 2u * 9 + 5);
  EXPECT_TRUE(spec.value().ties.empty());
  EXPECT_DOUBLE_EQ(spec.value().init_scale, 0.02 * std::sqrt(3.0));
  const auto tensors = ByName(spec.value());
  EXPECT_THAT(tensors.at("model.layers.1.self_attn.k_proj.weight").shape, ElementsAre(8, 8));
  EXPECT_THAT(tensors.at("model.layers.1.mlp.down_proj.weight").shape, ElementsAre(8, 12));
  EXPECT_EQ(tensors.at("model.norm.weight").init, InitialValue::kOnes);
  EXPECT_EQ(tensors.at("lm_head.weight").init, InitialValue::kUniform);
  EXPECT_EQ(tensors.at("lm_head.weight").dtype, at::kFloat);
  const TensorSpec& frequencies = tensors.at("model.rotary_emb.inv_freq");
  EXPECT_EQ(frequencies.kind, TensorKind::kBuffer);
  EXPECT_FALSE(frequencies.persistent);
  EXPECT_FALSE(frequencies.requires_grad);
  EXPECT_THAT(frequencies.shape, ElementsAre(1));
  EXPECT_EQ(frequencies.rope->theta, 10000.0);
}

TEST(SpecFromConfig, Qwen3HasHeadNormsItsHeadDimAndNoMlpBias) {
  const auto spec = Spec(With(Llama(), {{"architectures", {"Qwen3ForCausalLM"}},
                                        {"num_key_value_heads", 2},
                                        {"head_dim", 6},
                                        {"mlp_bias", true},
                                        {"attention_bias", true},
                                        {"tie_word_embeddings", true},
                                        {"dtype", "bfloat16"}}));
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  const auto tensors = ByName(spec.value());
  EXPECT_EQ(tensors.size(), 2u * (11 + 4) + 5);
  EXPECT_THAT(tensors.at("model.layers.0.self_attn.q_proj.weight").shape, ElementsAre(24, 8));
  EXPECT_THAT(tensors.at("model.layers.0.self_attn.k_proj.bias").shape, ElementsAre(12));
  EXPECT_EQ(tensors.at("model.layers.0.self_attn.k_proj.bias").init, InitialValue::kZeros);
  EXPECT_THAT(tensors.at("model.layers.0.self_attn.q_norm.weight").shape, ElementsAre(6));
  EXPECT_EQ(tensors.at("model.layers.0.self_attn.q_norm.weight").init, InitialValue::kOnes);
  EXPECT_EQ(tensors.at("lm_head.weight").dtype, at::kBFloat16);
  EXPECT_EQ(tensors.at("model.rotary_emb.inv_freq").dtype, at::kFloat);
  EXPECT_FALSE(tensors.contains("model.layers.0.mlp.up_proj.bias"));
  EXPECT_THAT(spec.value().ties,
              ElementsAre(ElementsAre("model.embed_tokens.weight", "lm_head.weight")));
}

TEST(SpecFromConfig, TakesThetaAndDtypeWhereverTheyAreWritten) {
  const auto theta = [](const json& more) {
    const auto spec = Spec(With(Llama(), more));
    EXPECT_TRUE(spec.ok()) << more << ": " << spec.error().message;
    return spec.ok() ? ByName(spec.value()).at("model.rotary_emb.inv_freq").rope->theta : -1;
  };
  EXPECT_EQ(theta({{"rope_theta", 500000}}), 500000);
  EXPECT_EQ(theta({{"rope_theta", 5}, {"rope_parameters", {{"rope_theta", 7.5}}}}), 7.5);
  EXPECT_EQ(theta({{"rope_theta", 6}, {"rope_parameters", {{"rope_type", "default"}}}}), 6);
  EXPECT_EQ(theta({{"rope_scaling", {{"type", "default"}}}}), 10000);
  EXPECT_EQ(Spec(With(Llama(), {{"torch_dtype", "float16"}})).value().tensors[0].dtype, at::kHalf);
  EXPECT_EQ(Spec(With(Llama(), {{"torch_dtype", "float16"}, {"dtype", "float64"}}))
                .value()
                .tensors[0]
                .dtype,
            at::kDouble);
}

TEST(SpecFromConfig, RefusesEveryWrongField) {
  for (const char* text : {"", "not JSON", "[]", "1", "{", "{\"a\": \"\xff\"}"}) {
    EXPECT_NE(Refusal(std::string(text)), "accepted") << text;
  }
  EXPECT_THAT(Refusal(json::object()), HasSubstr("'architectures' and 'model_type' are missing"));
  EXPECT_THAT(
      Refusal(json{{"architectures", {"GPT2LMHeadModel"}}}),
      HasSubstr("'GPT2LMHeadModel' is unknown: known are LlamaForCausalLM, Qwen3ForCausalLM"));
  for (const json& list : {json("LlamaForCausalLM"), json::array({1}), json(3)}) {
    EXPECT_THAT(Refusal(With(Llama(), {{"architectures", list}})), HasSubstr("a list of strings"));
  }
  for (const char* field : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                            "num_attention_heads"}) {
    json without = Llama();
    without.erase(field);
    EXPECT_THAT(Refusal(without), HasSubstr(fmt::format("'{}' is missing", field)));
  }
  for (const char* field : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                            "num_attention_heads", "num_key_value_heads", "head_dim"}) {
    for (const json& value :
         {json(0), json(-1), json(8.5), json("8"), json(true), json::array(),
          json(int64_t{1} << 40), json(INT64_MAX), json(UINT64_MAX), json(1e300)}) {
      EXPECT_THAT(Refusal(With(Llama(), {{field, value}})), HasSubstr(field)) << value;
    }
  }
  for (const char* field : {"attention_bias", "mlp_bias", "tie_word_embeddings"}) {
    EXPECT_THAT(Refusal(With(Llama(), {{field, 1}})), HasSubstr("true or false")) << field;
  }
  for (const char* field : {"rope_theta", "initializer_range"}) {
    for (const json& value : {json(0), json(-1), json("1"), json(false)}) {
      EXPECT_THAT(Refusal(With(Llama(), {{field, value}})), HasSubstr(field)) << value;
    }
  }
  EXPECT_THAT(Refusal(With(Llama(), {{"dtype", "int8"}})), HasSubstr("'int8' is unknown"));
  EXPECT_THAT(Refusal(With(Llama(), {{"dtype", 16}})), HasSubstr("expected a string"));
}

TEST(SpecFromConfig, RefusesRopesThatSayTooLittle) {
  for (const char* field : {"rope_parameters", "rope_scaling"}) {
    const auto refusal = [&](const json& rope) { return Refusal(With(Llama(), {{field, rope}})); };
    EXPECT_THAT(refusal({{"rope_type", "axial"}}),
                HasSubstr("'axial' is unknown: known are default"));
    EXPECT_THAT(refusal({{"type", "linear"}}), HasSubstr("'factor' is missing"));
    EXPECT_THAT(refusal({{"rope_type", "dynamic"}, {"factor", 0}}), HasSubstr("'factor' is 0"));
    EXPECT_THAT(refusal({{"rope_type", "yarn"}}), HasSubstr("'factor' is missing"));
    EXPECT_THAT(refusal({{"rope_type", "yarn"}, {"factor", 4}, {"rope_theta", 1}}),
                HasSubstr("more than 1 for yarn"));
    EXPECT_THAT(refusal({{"rope_type", "longrope"}, {"short_factor", {1.0, 2.0}}}),
                HasSubstr("'short_factor' is [1.0,2.0]: expected a list of 1 positive"));
    EXPECT_THAT(refusal({{"rope_type", "llama3"},
                         {"factor", 8},
                         {"original_max_position_embeddings", 64},
                         {"low_freq_factor", 1}}),
                HasSubstr("'high_freq_factor' is missing"));
    EXPECT_THAT(refusal({{"rope_type", "llama3"},
                         {"factor", 8},
                         {"original_max_position_embeddings", 64},
                         {"low_freq_factor", 1},
                         {"high_freq_factor", 1}}),
                HasSubstr("another number than low_freq_factor"));
    EXPECT_THAT(refusal({{"rope_type", "linear"}, {"factor", 2}, {"partial_rotary_factor", 1.5}}),
                HasSubstr("up to 1"));
    EXPECT_THAT(refusal(3), HasSubstr("expected an object"));
    EXPECT_NE(refusal({{"full_attention", {{"rope_theta", 1}}}}), "accepted");
  }
}

TEST(SpecFromConfig, RefusesWhatWouldBeAnotherModel) {
  EXPECT_NE(Refusal(With(Llama(), {{"hidden_size", 9}})), "accepted") << "heads do not divide it";
  EXPECT_NE(Refusal(With(Llama(), {{"num_key_value_heads", 3}})), "accepted");
  EXPECT_NE(Refusal(With(Llama(), {{"head_dim", 3}})), "accepted") << "RoPE turns pairs";
  EXPECT_NE(Refusal(With(Llama(), {{"num_attention_heads", 16}})), "accepted");
  EXPECT_NE(Refusal(With(Llama(), {{"quantization_config", json::object()}})), "accepted");
}

constexpr const char* kInt8 = R"({"quant_method": "compressed-tensors",
    "format": "int-quantized", "quantization_status": "compressed", "ignore": ["lm_head"],
    "config_groups": {"group_0": {"targets": ["Linear"],
        "weights": {"strategy": "channel"},
        "input_activations": {"strategy": "token", "dynamic": true}}}})";

TEST(SpecFromConfig, QuantisedLayersHaveCodesAndFactors) {
  json config = With(Llama(), {{"dtype", "bfloat16"}, {"attention_bias", true}});
  config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {4, 3}}};
  const auto fp8 = ByName(Spec(config).value());
  const auto& codes = fp8.at("model.layers.0.self_attn.q_proj.weight");
  const auto& factors = fp8.at("model.layers.0.self_attn.q_proj.weight_scale_inv");
  EXPECT_EQ(codes.dtype, at::kFloat8_e4m3fn);
  EXPECT_EQ(factors.dtype, at::kFloat);
  EXPECT_EQ(factors.shape,
            (std::vector<int64_t>{(codes.shape[0] + 3) / 4, (codes.shape[1] + 2) / 3}));
  EXPECT_EQ(factors.init, InitialValue::kOnes);
  EXPECT_TRUE(codes.requires_grad && factors.requires_grad);
  EXPECT_EQ(fp8.at("lm_head.weight").dtype, at::kBFloat16);

  config["quantization_config"] = json::parse(kInt8);
  const auto int8 = ByName(Spec(config).value());
  const auto& rows = int8.at("model.layers.0.self_attn.q_proj.weight_scale");
  EXPECT_EQ(int8.at("model.layers.0.self_attn.q_proj.weight").dtype, at::kChar);
  EXPECT_EQ(rows.dtype, at::kBFloat16);
  EXPECT_EQ(rows.shape, (std::vector<int64_t>{codes.shape[0], 1}));
  EXPECT_FALSE(rows.requires_grad);
  EXPECT_FALSE(int8.at("model.layers.0.self_attn.q_proj.bias").requires_grad);
  EXPECT_EQ(int8.at("lm_head.weight").dtype, at::kBFloat16);
}

TEST(SpecFromConfig, NamesTheFieldOfAQuantisationThatItDoesNotKnow) {
  const auto refusal = [](const json& more) {
    json config = Llama();
    config["quantization_config"] = {{"quant_method", "fp8"}};
    config["quantization_config"].update(more);
    return Refusal(config);
  };
  EXPECT_EQ(refusal(json::object()), "accepted");
  EXPECT_THAT(refusal({{"quant_method", "awq"}}),
              HasSubstr("'awq': expected fp8 or compressed-tensors for LlamaForCausalLM"));
  EXPECT_THAT(refusal({{"activation_scheme", "static"}}), HasSubstr("'activation_scheme'"));
  EXPECT_THAT(refusal({{"weight_block_size", nullptr}}), HasSubstr("two integers"));
  EXPECT_THAT(refusal({{"scale_fmt", "ue8m0"}}), HasSubstr("expected \"float\""));
  EXPECT_THAT(refusal({{"modules_to_not_convert", {"a.*"}}}), HasSubstr("no patterns"));
  EXPECT_THAT(refusal({{"new", 1}}), HasSubstr("'new' is unknown"));
  EXPECT_THAT(refusal({{"quant_method", "compressed-tensors"}}), HasSubstr("'format' is missing"));
}

TEST(SpecFromConfig, NamesEveryFieldOfAQuantisationThatHasAnotherValue) {
  const std::string weights = "/config_groups/group_0/weights/";
  const std::vector<std::pair<std::string, json>> of_int8 = {
      {"/format", "pack-quantized"},
      {"/quantization_status", "frozen"},
      {"/kv_cache_scheme", {{"num_bits", 8}}},
      {"/moe_sparsity_config", {{"a", 1}}},
      {"/sparsity_config", {{"a", 1}}},
      {"/transform_config", {{"a", 1}}},
      {"/run_compressed", false},
      {"/dequantize", true},
      {"/use_optimized_inference", true},
      {"/config_groups/group_0/targets", {"Conv2d"}},
      {"/config_groups/group_0/output_activations", {{"num_bits", 8}}},
      {"/config_groups/group_0/format", "pack-quantized"},
      {weights + "num_bits", 4},
      {weights + "type", "float"},
      {weights + "symmetric", false},
      {weights + "strategy", "group"},
      {weights + "dynamic", true},
      {weights + "group_size", 128},
      {weights + "block_structure", "2:4"},
      {weights + "actorder", "group"},
      {weights + "scale_dtype", "torch.float32"}};
  const std::vector<std::pair<std::string, json>> of_fp8 = {
      {"/activation_scheme", "static"},
      {"/dequantize", true},
      {"/scale_fmt", "ue8m0"},
      {"/expert_dtype", "fp4"},
      {"/fmt", "e5m2"},
      {"/modules_to_convert", {"embed_tokens"}}};
  for (const auto& [method, fields] :
       {std::pair{json::parse(kInt8), of_int8}, {json{{"quant_method", "fp8"}}, of_fp8}}) {
    for (const auto& [pointer, value] : fields) {
      json config = Llama();
      config["quantization_config"] = method;
      EXPECT_EQ(Refusal(config), "accepted");
      config["quantization_config"][json::json_pointer(pointer)] = value;
      const std::string name = pointer.substr(pointer.find_last_of('/') + 1);
      EXPECT_THAT(Refusal(config), HasSubstr("'" + name + "'"));
    }
  }
}

TEST(SpecFromConfig, RefusesSizesWhoseProductOverflows) {
  const int64_t huge = int64_t{1} << 31;
  EXPECT_NE(Refusal(With(Llama(), {{"vocab_size", huge}, {"hidden_size", huge}})), "accepted");
  EXPECT_NE(Refusal(With(Llama(), {{"num_attention_heads", huge}, {"head_dim", huge}})),
            "accepted");
}

TEST(SpecFromConfig, RefusesDeepNestingWithoutFallingOver) {
  constexpr int kDepth = 2'000'000;
  const std::string deep = std::string(kDepth, '[') + std::string(kDepth, ']');
  for (const char* field :
       {"architectures", "vocab_size", "rope_theta", "dtype", "mlp_bias", "rope_parameters"}) {
    std::string text = Llama().dump();
    // The later of two equal keys wins or is refused; either way it is looked at.
    text.insert(text.size() - 1, fmt::format(",\"{}\":{}", field, deep));
    EXPECT_NE(Refusal(text), "accepted") << field;
  }
}

}  // namespace
}  // namespace shardproof
