// For tests: a config.json as the reference pipeline and the independent oracle read it, as text.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "src/aten/dtype.h"
#include "src/load/load.h"
#include "verify/oracle/fixture_files.h"
#include "verify/oracle/oracle.h"

namespace shardproof {

using nlohmann::json;

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
inline std::string PipelineModel(const std::string& config) {
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

/// The same of the oracle.
inline std::string OracleModel(const std::string& config) {
  const oracle::TemporaryDirectory directory;
  EXPECT_TRUE(oracle::WriteTextFile(directory / "config.json", config).ok());
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
inline std::string Sorted(const std::string& text) {
  std::set<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.insert(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

/// What every decoder has.
inline json BaseConfig(const std::string& architecture) {
  return {{"architectures", {architecture}}, {"vocab_size", 11},       {"hidden_size", 16},
          {"intermediate_size", 12},         {"num_hidden_layers", 2}, {"num_attention_heads", 4}};
}

/// For a message.
inline std::string Gist(const std::string& model) {
  return model == "refused" ? "refuses" : "declares a model";
}

/// A small config of each architecture that the two sides know.
inline std::vector<json> EveryArchitecture() {
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
inline json& DecoderOf(json& config) {
  return config.contains("text_config") ? config["text_config"] : config;
}

}  // namespace shardproof
