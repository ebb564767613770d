// The reference pipeline against the independent oracle, where both answer the same question.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "src/aten/dtype.h"
#include "src/load/load.h"
#include "src/model/initial_value.h"
#include "verify/oracle/fixture_files.h"
#include "verify/oracle/oracle.h"

namespace shardproof {
namespace {

using nlohmann::json;
using oracle::TemporaryDirectory;
using oracle::WriteTextFile;

// ---- Reading safetensors ----

/// What a reader says of a checkpoint: a line a tensor, or why not.
struct Reading {
  std::vector<std::string> tensors;
  std::string refusal;
};

std::string Line(const std::string& name, const std::string& dtype,
                 const std::vector<int64_t>& shape, uint64_t offset, uint64_t length) {
  return fmt::format("{} {} {} at {} +{}", json(name).dump(), dtype, json(shape).dump(), offset,
                     length);
}

Reading ByPipeline(const std::string& directory) {
  const auto source = OpenSource(*MakePosixFileSystem(), directory);
  Reading reading;
  if (!source.ok()) {
    EXPECT_EQ(source.error().code, ErrorCode::kBadInput) << source.error().message;
    EXPECT_FALSE(source.error().message.empty());
    reading.refusal = source.error().message;
    return reading;
  }
  for (const auto& [name, tensor] : source.value().tensors) {
    reading.tensors.push_back(
        Line(name, DtypeName(tensor.dtype), tensor.shape, tensor.offset, tensor.length));
    EXPECT_LE(tensor.offset + tensor.length, source.value().files.at(tensor.file)->size());
  }
  return reading;
}

Reading ByOracle(const std::string& directory) {
  const auto located = oracle::Locate(directory);
  Reading reading;
  if (!located.ok()) {
    reading.refusal = located.error().message;
    return reading;
  }
  for (const auto& tensor : located.value()) {
    reading.tensors.push_back(
        Line(tensor.name, tensor.dtype, tensor.shape, tensor.file_offset, tensor.byte_length));
  }
  return reading;
}

/// Small changes to a text, of the kinds that files suffer and that attackers make.
class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  /// \param reach the changes fall on the first `reach` bytes.
  std::string Mutate(std::string text, size_t reach) {
    const int changes = 1 + static_cast<int>(Below(3));
    for (int i = 0; i < changes && !text.empty(); ++i) {
      const size_t at = Below(std::min(reach, text.size()));
      switch (Below(8)) {
        case 0:
          text[at] = static_cast<char>(text[at] ^ (1 << Below(8)));
          break;
        case 1:
          text[at] = static_cast<char>(Below(256));
          break;
        case 2:
          text[at] = "0123456789[]{}\",:-.eE x"[Below(23)];
          break;
        case 3:
          text.erase(at, 1 + Below(4));
          break;
        case 4:
          text.insert(at, kTokens[Below(std::size(kTokens))]);
          break;
        case 5:
          text.insert(at, text.substr(Below(text.size()), Below(64)));
          break;
        case 6:
          text.resize(Below(2) == 0 ? at : text.size() - 1 - Below(text.size()));
          break;
        case 7: {
          const std::string token = kTokens[Below(std::size(kTokens))];
          text.replace(at, std::min(token.size(), text.size() - at), token);
          break;
        }
      }
    }
    return text;
  }
  size_t Below(size_t limit) { return random_() % limit; }

 private:
  static constexpr const char* kTokens[] = {"0",
                                            "-1",
                                            "9223372036854775807",
                                            "9223372036854775808",
                                            "18446744073709551616",
                                            "1e9",
                                            "[",
                                            "]",
                                            "{",
                                            "}",
                                            ",",
                                            ":",
                                            "\"",
                                            "null",
                                            "\"F32\"",
                                            "\"F64\"",
                                            "\"w\"",
                                            "\\u0000",
                                            "\\",
                                            " ",
                                            "\xff",
                                            "\"__metadata__\"",
                                            "true",
                                            "0.0",
                                            "\xef\xbb\xbf",
                                            "\"shape\":[0]"};
  std::mt19937_64 random_;
};

/// Header and data with the header's true length in front, so that what changed is looked at.
std::string WithLength(const std::string& header, const std::string& data) {
  return oracle::RawSafetensors(header, data);
}

/// If the pipeline accepts, the oracle accepts and says the same; the oracle may know more dtypes
/// and let more by.
void ExpectNoRashness(const std::string& directory, const std::string& what, int* accepted) {
  const Reading pipeline = ByPipeline(directory);
  if (!pipeline.refusal.empty()) return;
  const Reading oracle = ByOracle(directory);
  ASSERT_EQ(oracle.refusal, "") << what;
  ASSERT_EQ(pipeline.tensors, oracle.tensors) << what;
  ++*accepted;
}

TEST(OpenSource, AcceptsNoMutatedFileThatTheOracleReadsOtherwise) {
  const TemporaryDirectory directory;
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[3],"data_offsets":[24,30]},)"
      R"("n":{"dtype":"I64","shape":[0,2],"data_offsets":[24,24]},)"
      R"("w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})";
  const std::string data(30, 'd');
  const std::string whole = WithLength(header, data);
  ASSERT_TRUE(WriteTextFile(directory / "model.safetensors", whole).ok());
  ASSERT_EQ(ByPipeline(directory.path()).tensors, ByOracle(directory.path()).tensors);
  ASSERT_EQ(ByPipeline(directory.path()).tensors.size(), 3u);
  Mutator mutator(1);
  int accepted = 0;
  constexpr int kRounds = 4000;
  for (int round = 0; round < kRounds; ++round) {
    const bool keep_length = mutator.Below(4) != 0;
    const std::string file = keep_length ? WithLength(mutator.Mutate(header, header.size()), data)
                                         : mutator.Mutate(whole, 12);
    ASSERT_TRUE(WriteTextFile(directory / "model.safetensors", file).ok());
    ExpectNoRashness(directory.path(),
                     fmt::format("round {}: {}", round,
                                 json(file).dump(-1, ' ', true, json::error_handler_t::replace)),
                     &accepted);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(accepted, kRounds / 100) << "nothing was compared";
  EXPECT_LT(accepted, kRounds / 2) << "the mutations are too tame";
}

TEST(OpenSource, AcceptsNoMutatedIndexThatTheOracleReadsOtherwise) {
  const TemporaryDirectory directory;
  const std::string index = R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors",)"
                            R"("c":"2.safetensors"}})";
  ASSERT_TRUE(oracle::WriteSafetensors(directory / "1.safetensors",
                                       {oracle::PlannedBytes("a", "U8", {3}, "abc")})
                  .ok());
  ASSERT_TRUE(oracle::WriteSafetensors(directory / "2.safetensors",
                                       {oracle::PlannedBytes("b", "U8", {2}, "ab"),
                                        oracle::PlannedBytes("c", "U8", {4}, "abcd")})
                  .ok());
  const std::string path = directory / "model.safetensors.index.json";
  ASSERT_TRUE(WriteTextFile(path, index).ok());
  ASSERT_EQ(ByPipeline(directory.path()).tensors, ByOracle(directory.path()).tensors);
  Mutator mutator(2);
  int accepted = 0;
  for (int round = 0; round < 2000; ++round) {
    const std::string text = mutator.Mutate(index, index.size());
    ASSERT_TRUE(WriteTextFile(path, text).ok());
    ExpectNoRashness(directory.path(), text, &accepted);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(accepted, 0) << "nothing was compared";
}

TEST(OpenSource, ReadsWhatTheOracleReadsWhereBothKindsOfCheckpointAre) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(oracle::WriteSafetensors(directory / "model.safetensors",
                                       {oracle::PlannedBytes("a", "U8", {1}, "1")})
                  .ok());
  ASSERT_TRUE(oracle::WriteSafetensors(directory / "shard.safetensors",
                                       {oracle::PlannedBytes("a", "U8", {2}, "22")})
                  .ok());
  ASSERT_TRUE(WriteTextFile(directory / "model.safetensors.index.json",
                            R"({"weight_map":{"a":"shard.safetensors"}})")
                  .ok());
  EXPECT_EQ(ByPipeline(directory.path()).tensors, ByOracle(directory.path()).tensors);
}

// ---- The model of a config.json ----

/// What decides the frequencies, with only the fields that the kind reads.
template <typename Rope>
std::string RopeText(RopeKind kind, const Rope& rope, int64_t original_length, int64_t count) {
  std::string text = fmt::format("rope {} theta {} dim {}", static_cast<int>(kind), rope.theta,
                                 rope.dim == 0 ? 2 * count : rope.dim);
  const bool scaled = kind != RopeKind::kDefault && kind != RopeKind::kDynamic;
  if (scaled && kind != RopeKind::kLongrope) text += fmt::format(" factor {}", rope.factor);
  if (kind == RopeKind::kYarn) {
    text += fmt::format(" betas {} {} truncate {} length {}", rope.beta_fast, rope.beta_slow,
                        rope.truncate, original_length);
  }
  if (kind == RopeKind::kLlama3) {
    text += fmt::format(" {} to {} length {}", rope.low_freq_factor, rope.high_freq_factor,
                        original_length);
  }
  if (kind == RopeKind::kLongrope) text += fmt::format(" {}", fmt::join(rope.short_factor, ","));
  if (kind == RopeKind::kProportional) text += fmt::format(" rotated {}", rope.rotated);
  return text;
}

template <typename Tensor>
std::string StoredText(const Tensor& tensor) {
  std::string text;
  for (const auto& way : tensor.stored) {
    text += " as";
    for (const auto& part : way) text += " " + part.key + json(part.shape).dump();
  }
  return text;
}

/// Everything about a model that both sides declare, in order; or "refused".
std::string PipelineModel(const std::string& config) {
  const auto spec = SpecFromConfig(config, "config.json");
  if (!spec.ok()) {
    EXPECT_EQ(spec.error().code, ErrorCode::kBadInput);
    EXPECT_EQ(spec.error().message.find('\n'), std::string::npos);
    return "refused";
  }
  std::string text;
  for (const TensorSpec& t : spec.value().tensors) {
    text += fmt::format(
        "{} {} {} {} {} {} {} {}{}\n", t.name,
        t.kind == TensorKind::kBuffer ? "buffer" : "parameter", t.persistent, DtypeName(t.dtype),
        json(t.shape).dump(), t.requires_grad,
        t.init == InitialValue::kUniform ? "uniform"
                                         : (t.init == InitialValue::kOnes ? "ones" : "zeros"),
        t.rope ? RopeText(t.rope->kind, *t.rope, t.rope->original_length, t.shape[0]) : "",
        StoredText(t));
  }
  return text + json(spec.value().ties).dump() + fmt::format(" {}", spec.value().init_scale);
}

std::string OracleModel(const std::string& config) {
  const TemporaryDirectory directory;
  EXPECT_TRUE(WriteTextFile(directory / "config.json", config).ok());
  Case test_case;
  test_case.model.checkpoint = directory.path();
  const auto model = oracle::DeclareModel(test_case);
  if (!model.ok()) return "refused";
  std::string text;
  for (const TensorCase& t : model.value().tensors) {
    text += fmt::format("{} {} {} {} {} {} {} {}{}\n", t.name, t.kind, t.persistent, t.dtype,
                        json(t.shape).dump(), t.requires_grad, t.init,
                        t.rope ? RopeText(RopeKindFromName(t.rope->type).value(), *t.rope,
                                          t.rope->original_max_position_embeddings, t.shape[0])
                               : "",
                        StoredText(t));
  }
  return text + json(model.value().ties).dump() + fmt::format(" {}", model.value().init_scale);
}

/// Order is no part of what a model is.
std::string Sorted(const std::string& text) {
  std::set<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.insert(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

json BaseConfig(const std::string& architecture) {
  return {{"architectures", {architecture}}, {"vocab_size", 11},       {"hidden_size", 16},
          {"intermediate_size", 12},         {"num_hidden_layers", 2}, {"num_attention_heads", 4}};
}

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

std::string Gist(const std::string& model) {
  return model == "refused" ? "refuses" : "declares a model";
}

/// A small config of each architecture that the two sides know.
std::vector<json> EveryArchitecture() {
  json qwen3_moe = BaseConfig("Qwen3MoeForCausalLM");
  qwen3_moe.update({{"num_experts", 3}, {"moe_intermediate_size", 5}, {"num_key_value_heads", 2}});
  json lfm2_moe = BaseConfig("Lfm2MoeForCausalLM");
  lfm2_moe.update({{"num_experts", 3},
                   {"moe_intermediate_size", 5},
                   {"num_key_value_heads", 2},
                   {"num_dense_layers", 1},
                   {"layer_types", {"conv", "full_attention"}}});
  std::vector<json> configs = {BaseConfig("LlamaForCausalLM"), BaseConfig("Qwen3ForCausalLM"),
                               qwen3_moe, lfm2_moe};
  configs[1].update({{"head_dim", 6}, {"num_key_value_heads", 2}});
  for (const char* name :
       {"Qwen2_5_VLForConditionalGeneration", "Qwen3VLForConditionalGeneration"}) {
    json text = BaseConfig("");
    text.erase("architectures");
    text.update({{"num_key_value_heads", 2}});
    const json vision = {
        {"depth", 2},      {"hidden_size", 8},      {"intermediate_size", 6}, {"num_heads", 2},
        {"patch_size", 2}, {"out_hidden_size", 16}, {"spatial_merge_size", 2}};
    configs.push_back(
        {{"architectures", {name}}, {"text_config", text}, {"vision_config", vision}});
  }
  return configs;
}

/// The object of a config that holds the decoder's fields.
json& DecoderOf(json& config) {
  return config.contains("text_config") ? config["text_config"] : config;
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

// ---- Quantised models ----

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

TEST(SpecFromConfig, AgreesWithTheOracleOnEveryFieldOfAQuantisationLeftOutOrWrong) {
  const std::vector<json> odd = {json(),
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
      for (const std::string& field : fields) {
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

// ---- Initial values ----

std::string BytesOf(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return flat.nbytes() == 0
             ? ""
             : std::string(static_cast<const char*>(flat.const_data_ptr()), flat.nbytes());
}

constexpr const char* kDtypes[] = {"F32", "BF16", "F16", "F64", "F8_E4M3", "F8_E5M2", "I64", "I32",
                                   "I16", "I8",   "U64", "U32", "U16",     "U8",      "BOOL"};

Slot SlotOf(const std::string& dtype, const std::vector<int64_t>& shape, InitialValue init) {
  Slot slot(
      {.name = "model.layers.3.w", .dtype = *DtypeFromName(dtype), .shape = shape, .init = init});
  return slot;
}

TEST(FillInitialValue, IsTheOraclesToTheBitForEveryDtypeAndInit) {
  const std::vector<std::pair<InitialValue, std::string>> inits = {
      {InitialValue::kUniform, "uniform"},
      {InitialValue::kOnes, "ones"},
      {InitialValue::kZeros, "zeros"}};
  for (const char* dtype : kDtypes) {
    for (const auto& [init, name] : inits) {
      for (const std::vector<int64_t>& shape :
           {std::vector<int64_t>{}, {5}, {3, 3001}, {0, 2}, {2, 1, 3}}) {
        for (const double scale : {0.02 * std::sqrt(3.0), 1.0, 1e-4, 300.0}) {
          Slot slot = SlotOf(dtype, shape, init);
          slot.value = at::empty(shape, at::TensorOptions().dtype(slot.spec.dtype));
          if (slot.value.nbytes() > 0) {
            std::memset(slot.value.mutable_data_ptr(), 0xff, slot.value.nbytes());
          }
          FillInitialValue(slot, 42, scale);
          EXPECT_EQ(slot.content, SlotContent::kDefined);
          ASSERT_TRUE(BytesOf(slot.value) ==
                      oracle::InitialBytes(42, slot.spec.name, dtype, shape, name, scale))
              << dtype << " " << name << " " << testing::PrintToString(shape) << " " << scale;
        }
      }
    }
  }
}

TEST(FillInitialValue, AShardIsTheSliceOfTheWhole) {
  const std::vector<int64_t> shape = {7, 1300, 3};
  for (const char* dtype : {"F32", "BF16", "I64", "BOOL"}) {
    Slot whole = SlotOf(dtype, shape, InitialValue::kUniform);
    whole.value = at::empty(shape, at::TensorOptions().dtype(whole.spec.dtype));
    FillInitialValue(whole, 9, 1.0);
    for (int64_t dim = 0; dim < 3; ++dim) {
      for (const int64_t ranks : {2, 3, 8}) {
        for (int64_t rank = 0; rank < ranks; ++rank) {
          Slot part = SlotOf(dtype, shape, InitialValue::kUniform);
          part.shard = ShardOf(shape, {Placement::Shard(dim)}, {{{"dp_shard", ranks}}}, {rank});
          part.value =
              at::empty(part.shard.local_shape, at::TensorOptions().dtype(part.spec.dtype));
          FillInitialValue(part, 9, 1.0);
          const IndexRange range = ChunkOf(shape[dim], ranks, rank);
          ASSERT_TRUE(BytesOf(part.value) ==
                      BytesOf(whole.value.slice(dim, range.begin, range.end)))
              << dtype << " dim " << dim << " rank " << rank << " of " << ranks;
        }
      }
    }
  }
}

TEST(FillInitialValue, DependsOnSeedAndName) {
  const auto bytes = [](uint64_t seed, const std::string& name) {
    Slot slot({.name = name, .shape = {64}});
    slot.value = at::empty({64}, at::kFloat);
    FillInitialValue(slot, seed, 1.0);
    return BytesOf(slot.value);
  };
  EXPECT_EQ(bytes(1, "a"), bytes(1, "a"));
  EXPECT_NE(bytes(1, "a"), bytes(2, "a"));
  EXPECT_NE(bytes(1, "a"), bytes(1, "b"));
}

// ---- Derived buffers ----

TEST(ComputeBuffers, InverseFrequenciesAreTheFormulasToTwoUlp) {
  for (const double theta : {1.5, 10000.0, 500000.0, 1000000.0, 12345.678}) {
    for (const int64_t dim : {2, 6, 64, 80, 128, 256}) {
      auto model = BuildOnMeta({.tensors = {{.name = "rope",
                                             .kind = TensorKind::kBuffer,
                                             .persistent = false,
                                             .shape = {dim / 2},
                                             .rope = RopeSpec{.theta = theta}}}},
                               0, *MakeHostDevice());
      ASSERT_TRUE(model.ok());
      const auto slot = model.value().Slots()[0];
      slot->value = at::full({dim / 2}, std::nanf(""));
      World world;
      ASSERT_TRUE(ComputeBuffers(model.value(), Job{}, world).ok());
      EXPECT_EQ(slot->content, SlotContent::kDefined);
      // As Transformers writes it.
      const at::Tensor library =
          1.0 / at::pow(theta, at::arange(0, dim, 2, at::kLong).to(at::kFloat) / dim);
      EXPECT_EQ(BytesOf(slot->value), BytesOf(library)) << theta << " " << dim;
      const std::vector<float> expected = oracle::DefaultInverseFrequencies(theta, dim);
      ASSERT_EQ(expected.size(), static_cast<size_t>(dim / 2));
      for (size_t i = 0; i < expected.size(); ++i) {
        const float seen = slot->value.const_data_ptr<float>()[i];
        int32_t bits[2];
        std::memcpy(bits, &seen, 4);
        std::memcpy(bits + 1, &expected[i], 4);
        EXPECT_LE(std::abs(bits[0] - bits[1]), 2) << theta << " " << dim << " " << i;
      }
    }
  }
}

TEST(ComputeBuffers, LeavesPersistentAndDefinedBuffersAlone) {
  ModelSpec spec;
  for (const char* name : {"loaded", "made", "plain"}) {
    spec.tensors.push_back({.name = name, .kind = TensorKind::kBuffer, .shape = {3}});
  }
  spec.tensors[1].persistent = false;
  spec.tensors[2].persistent = false;
  spec.tensors[2].init = InitialValue::kOnes;
  auto model = BuildOnMeta(spec, 0, *MakeHostDevice());
  ASSERT_TRUE(model.ok());
  const auto slots = model.value().Slots();
  for (const auto& slot : slots) slot->value = at::full({3}, 42.0f);
  slots[1]->content = SlotContent::kDefined;
  World world;
  ASSERT_TRUE(ComputeBuffers(model.value(), Job{}, world).ok());
  EXPECT_TRUE(at::equal(slots[0]->value, at::full({3}, 42.0f)));
  EXPECT_TRUE(at::equal(slots[1]->value, at::full({3}, 42.0f)));
  EXPECT_TRUE(at::equal(slots[2]->value, at::ones({3})));
  EXPECT_NE(slots[0]->content, SlotContent::kDefined);
}

}  // namespace
}  // namespace shardproof
