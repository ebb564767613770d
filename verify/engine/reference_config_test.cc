// The model of a config.json: the reference pipeline against the independent oracle.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "verify/engine/fixture_models.h"

namespace shardproof {
namespace {

TEST(SpecFromConfig, DeclaresTheOraclesModelOverAGridOfConfigs) {
  int declared = 0;
  for (const char* architecture : {"LlamaForCausalLM", "Qwen3ForCausalLM"}) {
    for (const json& tied : {json(), json(false), json(true)}) {
      for (const json& biases : {json(), json(true)}) {
        for (const json& key_value_heads : {json(), json(1), json(2), json(4)}) {
          for (const json& head_dim : {json(), json(4), json(6), json(128)}) {
            for (const json& dtype : {json(), json("bfloat16"), json("float64")}) {
              json config = BaseConfig(architecture);
              config["tie_word_embeddings"] = tied;
              config["attention_bias"] = biases;
              config["mlp_bias"] = biases;
              config["num_key_value_heads"] = key_value_heads;
              config["head_dim"] = head_dim;
              config[tied.is_null() ? "torch_dtype" : "dtype"] = dtype;
              const std::string text = config.dump();
              const std::string expected = OracleModel(text);
              ASSERT_EQ(Sorted(PipelineModel(text)), Sorted(expected)) << text;
              declared += expected != "refused";
            }
          }
        }
      }
    }
  }
  EXPECT_GT(declared, 200);
}

TEST(SpecFromConfig, DeclaresTheOraclesModelOfEveryArchitectureAndRope) {
  const json scaled = {{"factor", 4.0}, {"original_max_position_embeddings", 64}};
  const std::vector<json> ropes = {
      json::object(),
      {{"rope_type", "default"}, {"rope_theta", 7.0}},
      {{"rope_type", "mrope"}},
      {{"rope_type", "linear"}, {"factor", 2.5}, {"partial_rotary_factor", 0.5}},
      {{"rope_type", "dynamic"}, {"factor", 2.5}},
      {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}},
      {{"rope_type", "yarn"},
       {"original_max_position_embeddings", 64},
       {"beta_fast", 8},
       {"truncate", false}},
      {{"rope_type", "yarn"}, {"factor", 2}},
      {{"rope_type", "longrope"},
       {"short_factor", {1.0, 1.5}},
       {"long_factor", {2.0, 3.0}},
       {"factor", 4.0},
       {"original_max_position_embeddings", 64}},
      {{"rope_type", "longrope"}, {"short_factor", {1.0}}},
      {{"rope_type", "llama3"},
       {"factor", 8},
       {"low_freq_factor", 1},
       {"high_freq_factor", 4},
       {"original_max_position_embeddings", 64}},
      {{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 1}, {"high_freq_factor", 4}},
      {{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 1}},
      {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}},
      {{"rope_type", "proportional"}, {"factor", 2.0}},
      {{"rope_type", "axial"}},
      {{"rope_type", "nonesuch"}},
  };
  int declared = 0;
  for (const json& base : EveryArchitecture()) {
    for (const json& rope : ropes) {
      for (const char* field : {"rope_parameters", "rope_scaling"}) {
        for (const json& length : {json(), json(512)}) {
          for (const json& tied : {json(), json(true)}) {
            json config = base;
            DecoderOf(config)[field] = rope;
            DecoderOf(config)["max_position_embeddings"] = length;
            config["tie_word_embeddings"] = tied;
            config["dtype"] = "bfloat16";
            const std::string text = config.dump();
            const std::string expected = OracleModel(text);
            ASSERT_EQ(Sorted(PipelineModel(text)), Sorted(expected)) << text;
            declared += expected != "refused";
          }
        }
      }
    }
  }
  EXPECT_GT(declared, 400);
}

TEST(SpecFromConfig, AgreesWithTheOracleOnEveryFieldLeftOutOrWrong) {
  std::string disagreements;
  int declared = 0;
  int refused = 0;
  for (const json& base : EveryArchitecture()) {
    std::vector<json::json_pointer> fields;
    const json flat = base.flatten();
    for (const auto& [pointer, value] : flat.items()) {
      fields.emplace_back(pointer);
      if (const auto parent = json::json_pointer(pointer).parent_pointer(); !parent.empty()) {
        fields.push_back(parent);
      }
    }
    for (const char* more :
         {"/attention_bias", "/mlp_bias", "/conv_bias", "/use_expert_bias", "/conv_L_cache",
          "/decoder_sparse_step", "/mlp_only_layers", "/num_local_experts", "/tie_embedding",
          "/head_dim", "/initializer_range", "/vision_config/deepstack_visual_indexes",
          "/vision_config/num_position_embeddings", "/vision_config/in_channels",
          "/vision_config/temporal_patch_size", "/text_config/tie_word_embeddings",
          "/text_config/head_dim", "/text_config/attention_bias"}) {
      fields.emplace_back(more);
    }
    for (const auto& field : fields) {
      for (const json& value : {json(), json(0), json(1), json(2), json(3), json(true), json("x"),
                                json::array(), json::array({0}), json::array({1}), json::array({7}),
                                json::array({-1}), json::object(), json(1.5), json(1 << 20)}) {
        if (!base.contains(field.parent_pointer())) continue;
        json config = base;
        config[field] = value;
        const std::string text = config.dump();
        const std::string expected = OracleModel(text);
        const std::string seen = PipelineModel(text);
        (expected == "refused" ? refused : declared) += 1;
        if (Sorted(seen) == Sorted(expected)) continue;
        disagreements += fmt::format("{} with {} = {}: the oracle {}, the pipeline {}\n",
                                     base["architectures"][0].dump(), field.to_string(),
                                     value.dump(), Gist(expected), Gist(seen));
      }
    }
  }
  EXPECT_EQ(disagreements, "");
  EXPECT_GT(declared, 300);
  EXPECT_GT(refused, 500);
}

TEST(SpecFromConfig, RefusesWhatTheOracleRefusesAndNothingElse) {
  const std::vector<json> odd = {json(),
                                 json(0),
                                 json(1),
                                 json(2),
                                 json(3),
                                 json(9),
                                 json(-4),
                                 json(4.0),
                                 json(0.5),
                                 json(true),
                                 json(false),
                                 json("4"),
                                 json(""),
                                 json("default"),
                                 json("bfloat16"),
                                 json("torch.bfloat16"),
                                 json::array(),
                                 json::object(),
                                 json({{"rope_theta", 7}}),
                                 json({{"type", "default"}}),
                                 json({{"rope_type", "llama3"}, {"factor", 8}}),
                                 json({{"full_attention", {{"rope_theta", 7}}}}),
                                 json::array({"LlamaForCausalLM"}),
                                 json::array({1}),
                                 json(5000),
                                 json(70000),
                                 json(20000000),
                                 json(INT64_MAX),
                                 json(UINT64_MAX),
                                 json(1e300)};
  std::string disagreements;
  for (const char* architecture : {"LlamaForCausalLM", "Qwen3ForCausalLM"}) {
    for (const char* field :
         {"architectures", "model_type", "vocab_size", "hidden_size", "intermediate_size",
          "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
          "tie_word_embeddings", "attention_bias", "mlp_bias", "initializer_range", "rope_theta",
          "rope_parameters", "rope_scaling", "dtype", "torch_dtype", "quantization_config"}) {
      for (const json& value : odd) {
        json config = BaseConfig(architecture);
        config["head_dim"] = 4;
        config["num_key_value_heads"] = 4;
        config[field] = value;
        const std::string text = config.dump();
        const std::string expected = OracleModel(text);
        const std::string seen = PipelineModel(text);
        if (Sorted(seen) == Sorted(expected)) continue;
        disagreements += fmt::format("{} with {} = {}: the oracle {}, the pipeline {}\n",
                                     architecture, field, value.dump(), Gist(expected), Gist(seen));
      }
    }
  }
  EXPECT_EQ(disagreements, "");
}

TEST(SpecFromConfig, AgreesWhereThetaIsWrittenTwice) {
  for (const char* parameters :
       {"null", "{}", R"({"rope_type":"default"})", R"({"rope_theta":3})"}) {
    for (const char* scaling : {"null", "{}", R"({"type":"default"})", R"({"rope_theta":5})"}) {
      for (const char* outer : {"null", "7"}) {
        std::string text = BaseConfig("LlamaForCausalLM").dump();
        text.insert(text.size() - 1,
                    fmt::format(R"(,"rope_parameters":{},"rope_scaling":{},"rope_theta":{})",
                                parameters, scaling, outer));
        EXPECT_EQ(Sorted(PipelineModel(text)), Sorted(OracleModel(text))) << text;
      }
    }
  }
}

}  // namespace
}  // namespace shardproof
