// The quantised model of a config.json: the reference pipeline against the independent oracle.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "verify/engine/fixture_models.h"

namespace shardproof {
namespace {

json Fp8Config() {
  return {{"quant_method", "fp8"},
          {"activation_scheme", "dynamic"},
          {"weight_block_size", {4, 3}},
          {"modules_to_not_convert", nullptr},
          {"modules_to_convert", nullptr},
          {"dequantize", false},
          {"scale_fmt", "float"},
          {"expert_dtype", "fp8"},
          {"fmt", "e4m3"}};
}

json Int8Config() {
  const json weights = {{"num_bits", 8},
                        {"type", "int"},
                        {"symmetric", true},
                        {"strategy", "channel"},
                        {"dynamic", false},
                        {"group_size", nullptr},
                        {"block_structure", nullptr},
                        {"actorder", nullptr},
                        {"observer", "minmax"},
                        {"observer_kwargs", json::object()},
                        {"scale_dtype", nullptr},
                        {"zp_dtype", nullptr}};
  json activations = weights;
  activations.update({{"strategy", "token"}, {"dynamic", true}});
  return {{"quant_method", "compressed-tensors"},
          {"format", "int-quantized"},
          {"quantization_status", "compressed"},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"weights", weights},
              {"input_activations", activations},
              {"output_activations", nullptr},
              {"format", "int-quantized"}}}}},
          {"ignore", {"lm_head"}},
          {"version", "0.20.0"},
          {"kv_cache_scheme", nullptr},
          {"global_compression_ratio", nullptr},
          {"moe_sparsity_config", nullptr},
          {"sparsity_config", json::object()},
          {"transform_config", json::object()},
          {"run_compressed", true},
          {"dequantize", false},
          {"use_optimized_inference", false}};
}

/// Names as they stand in lists of modules that stay as they are, and as they do not.
std::vector<json> ListsOfModules() {
  std::vector<json> lists = {json(), json::array(), json("lm_head"), json::array({1}),
                             json::array({nullptr})};
  for (const char* name : {"lm_head",
                           "head",
                           "model",
                           "model.",
                           "model.layers.0",
                           "model.layers.1.",
                           "proj",
                           "q_proj",
                           "model.layers.0.mlp",
                           "model.layers.1.mlp.up_proj",
                           "model.layers.1.mlp.experts",
                           "mlp.experts.0.gate_proj",
                           "model.layers.1.mlp.gate",
                           "odel",
                           "model-layers",
                           "",
                           ".",
                           "model.layers..",
                           "model.layers.0.mlp.up",
                           "re:.*",
                           "Linear",
                           "a b",
                           "\n",
                           "(",
                           "\u00e9"}) {
    lists.push_back(json::array({name}));
    lists.push_back(json::array({name, "lm_head"}));
  }
  return lists;
}

TEST(SpecFromConfig, DeclaresTheOraclesQuantisedModel) {
  int declared = 0;
  int refused = 0;
  const auto compare = [&](const json& config) {
    const std::string text = config.dump();
    const std::string expected = OracleModel(text);
    EXPECT_EQ(Sorted(PipelineModel(text)), Sorted(expected)) << text;
    (expected == "refused" ? refused : declared) += 1;
  };
  for (json base : EveryArchitecture()) {
    DecoderOf(base)["num_hidden_layers"] = 12;  // layers 1 and 11
    if (base.contains("layer_types")) base["layer_types"] = std::vector<std::string>(12, "conv");
    if (base.contains("moe_intermediate_size")) base["moe_intermediate_size"] = 12;
    base["dtype"] = "bfloat16";
    base["attention_bias"] = true;
    for (const bool fp8 : {true, false}) {
      for (const json& tied : {json(false), json(true)}) {
        for (const json& list : ListsOfModules()) {
          json config = base;
          config["tie_word_embeddings"] = tied;
          config["quantization_config"] = fp8 ? Fp8Config() : Int8Config();
          config["quantization_config"][fp8 ? "modules_to_not_convert" : "ignore"] = list;
          compare(config);
        }
      }
    }
    for (const json& rows : {json(1), json(2), json(5), json(12), json(128), json(1 << 24)}) {
      for (const json& columns : {json(1), json(3), json(16), json(4096)}) {
        json config = base;
        config["quantization_config"] = Fp8Config();
        config["quantization_config"]["weight_block_size"] = {rows, columns};
        compare(config);
        config["quantization_config"].erase("weight_block_size");
        compare(config);
      }
    }
  }
  EXPECT_GT(declared, 250);
  EXPECT_GT(refused, 300);
}

/// Of every kind, right for some field and wrong for all others.
std::vector<json> OddValues() {
  return {json(),
          json(0),
          json(8),
          json(8.0),
          json(-1),
          json(true),
          json(false),
          json(""),
          json("x"),
          json("dynamic"),
          json("static"),
          json("float"),
          json("ue8m0"),
          json("fp4"),
          json("fp8"),
          json("e5m2"),
          json("float8_e4m3fn"),
          json("int-quantized"),
          json("pack-quantized"),
          json("tensor"),
          json("channel"),
          json("frozen"),
          json("awq"),
          json("compressed-tensors"),
          json::array(),
          json::object(),
          json({{"a", 1}}),
          json::array({"Linear"}),
          json::array({8, 8}),
          json::array({8, 0}),
          json::array({8}),
          json::array({8, 8, 8}),
          json::array({8.0, 8}),
          json::array({"8", 8}),
          json::array({true, 8}),
          json::array({8, 1 << 25}),
          json::array({8, UINT64_MAX}),
          json::array({"Linear", "Linear"}),
          json::array({"lm_head"})};
}

/// Every field of a quantisation, some that it may have besides, and itself: "".
std::set<std::string> FieldsOf(const json& quantisation) {
  std::set<std::string> fields = {"", "/ignored_layers", "/new", "/config_groups/group_1"};
  const json flat = quantisation.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    for (json::json_pointer at(pointer); !at.empty(); at = at.parent_pointer()) {
      fields.insert(at.to_string());
    }
  }
  if (quantisation.contains("config_groups")) {
    const std::string group = "/config_groups/group_0";
    fields.insert({group + "/new", group + "/weights/new", group + "/input_activations/new"});
  } else {
    fields.erase("/config_groups/group_1");
  }
  return fields;
}

TEST(SpecFromConfig, AgreesWithTheOracleOnEveryFieldOfAQuantisationLeftOutOrWrong) {
  const std::vector<json> odd = OddValues();
  std::string disagreements;
  int declared = 0;
  int refused = 0;
  const auto compare = [&](const json& config, const std::string& what) {
    const std::string text = config.dump();
    const std::string expected = OracleModel(text);
    const std::string seen = PipelineModel(text);
    (expected == "refused" ? refused : declared) += 1;
    if (Sorted(seen) == Sorted(expected)) return;
    disagreements +=
        fmt::format("{}: the oracle {}, the pipeline {}\n", what, Gist(expected), Gist(seen));
  };
  for (const json& base : EveryArchitecture()) {
    for (const json& quantisation : {Fp8Config(), Int8Config()}) {
      json good = base;
      good["quantization_config"] = quantisation;
      if (good.contains("moe_intermediate_size")) good["moe_intermediate_size"] = 12;
      compare(good, base["architectures"][0].dump());
      if (OracleModel(good.dump()) == "refused") continue;
      for (const std::string& field : FieldsOf(quantisation)) {
        const json::json_pointer at("/quantization_config" + field);
        for (const json& value : odd) {
          json config = good;
          config[at] = value;
          compare(config, fmt::format("{} with {} = {}", base["architectures"][0].dump(),
                                      at.to_string(), value.dump()));
        }
        if (field.empty() || !good.contains(at)) continue;
        json config = good;
        json& parent = config[at.parent_pointer()];
        if (!parent.is_object()) continue;
        parent.erase(at.back());
        compare(config,
                fmt::format("{} without {}", base["architectures"][0].dump(), at.to_string()));
      }
    }
  }
  EXPECT_EQ(disagreements, "");
  EXPECT_GT(declared, 300);
  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace shardproof
