// Mixtures of experts: Qwen3-MoE and LFM2-MoE.
#include <fmt/format.h>

#include <algorithm>

#include "src/core/strict_json.h"
#include "src/model/hf_decoder.h"
#include "src/model/hf_models.h"

namespace shardproof {
namespace {

// Kept tensors of experts in all layers: far above any real model, and few enough to list.
constexpr int64_t kExpertTensorsMax = 1 << 20;

/// Refused before anything is listed.
Status CheckExperts(const Fields& config, int64_t experts, int64_t layers) {
  if (3 * experts * layers <= kExpertTensorsMax) return Ok();
  return BadInput(fmt::format("{}: {} experts in {} layers: expected at most {} tensors of experts",
                              config.origin(), experts, layers, kExpertTensorsMax));
}

}  // namespace

Result<ModelSpec> DescribeQwen3Moe(const Fields& config) {
  const DecoderFamily family{.qk_norm = true, .rope = {.positions = 32768}, .kv_heads_default = 4};
  SP_ASSIGN(const DecoderSizes d, DecoderSizesFrom(config, family));
  SP_ASSIGN(const at::ScalarType dtype, DtypeFromConfig(config));
  SP_ASSIGN(const bool tied, config.Flag("tie_word_embeddings", false));
  // The second is what newer configs call it.
  SP_ASSIGN(const int64_t before, config.Natural("num_experts", 128, kHeadsMax));
  SP_ASSIGN(const int64_t experts, config.Natural("num_local_experts", before, kHeadsMax));
  SP_ASSIGN(const int64_t inner, config.Count("moe_intermediate_size", 768));
  SP_ASSIGN(const int64_t every, config.Count("decoder_sparse_step", 1, kLayersMax));
  SP_ASSIGN(const auto dense, config.Indices("mlp_only_layers", {}, kLayersMax));
  const auto is_dense = [&](int64_t layer) {
    const bool listed = std::find(dense.begin(), dense.end(), layer) != dense.end();
    return experts == 0 || listed || (layer + 1) % every != 0;
  };
  SP_ASSIGN(Quantisation quantisation, QuantisationFromConfig(config, tied));
  int64_t sparse = 0;
  for (int64_t i = 0; i < d.layers; ++i) {
    if (is_dense(i)) continue;
    ++sparse;
    SP_TRY(quantisation.CheckExperts(config, fmt::format("model.layers.{}.mlp.experts", i), inner));
  }
  SP_TRY(CheckExperts(config, experts, sparse));

  SpecBuilder model(dtype, std::move(quantisation));
  model.Weight("model.embed_tokens.weight", {d.vocab, d.hidden});
  for (int64_t i = 0; i < d.layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}", i);
    AddAttention(model, layer + ".self_attn", d, family);
    if (is_dense(i)) {
      AddGatedMlp(model, layer + ".mlp", d.hidden, d.intermediate, false);
    } else {
      model.Experts(layer + ".mlp.experts", experts, inner, d.hidden,
                    {"gate_proj", "up_proj", "down_proj"});
      model.Weight(layer + ".mlp.gate.weight", {experts, d.hidden});
    }
    AddLayerNorms(model, layer, d.hidden);
  }
  model.Norm("model.norm", d.hidden);
  model.InverseFrequencies("model.rotary_emb", d.rotary);
  AddHead(model, "model.embed_tokens.weight", d, tied);
  return std::move(model.spec());
}

namespace {

struct Lfm2MoeSizes {
  DecoderSizes text;
  int64_t experts = 0, inner = 0, dense_layers = 0, taps = 0;
  bool conv_bias = false, expert_bias = false;
  std::vector<std::string> layer_types;
};

Result<Lfm2MoeSizes> Lfm2MoeSizesFrom(const Fields& config) {
  Lfm2MoeSizes sizes;
  SP_ASSIGN(sizes.text, DecoderSizesFrom(config, {.has_attention_bias = false,
                                                  .rope = {.theta = 1e6, .positions = 128000},
                                                  .kv_heads_default = 8}));
  SP_ASSIGN(sizes.experts, config.Count("num_experts", 32, kHeadsMax));
  SP_ASSIGN(sizes.inner, config.Count("moe_intermediate_size", 1792));
  SP_ASSIGN(sizes.taps, config.Count("conv_L_cache", 3, 4096));
  SP_ASSIGN(sizes.conv_bias, config.Flag("conv_bias", false));
  SP_ASSIGN(sizes.expert_bias, config.Flag("use_expert_bias", true));
  SP_ASSIGN(sizes.dense_layers, config.Natural("num_dense_layers", 2, kLayersMax));
  SP_TRY(CheckExperts(config, sizes.experts,
                      std::max<int64_t>(0, sizes.text.layers - sizes.dense_layers)));
  SP_ASSIGN(sizes.layer_types, config.Texts("layer_types"));
  if (static_cast<int64_t>(sizes.layer_types.size()) != sizes.text.layers) {
    return config.Wrong("layer_types", fmt::format("one for each of {} layers", sizes.text.layers));
  }
  for (const std::string& type : sizes.layer_types) {
    if (type == "conv" || type == "full_attention") continue;
    return BadInput(fmt::format("{}: field 'layer_types' has {}: expected conv or full_attention",
                                config.origin(), ShownText(type)));
  }
  return sizes;
}

void AddLfm2Mixer(SpecBuilder& model, const std::string& layer, const Lfm2MoeSizes& sizes,
                  bool attention) {
  const DecoderSizes& d = sizes.text;
  if (!attention) {
    model.Weight(layer + ".conv.conv.weight", {d.hidden, 1, sizes.taps});
    if (sizes.conv_bias) {
      model.Weight(layer + ".conv.conv.bias", {d.hidden}).init = InitialValue::kZeros;
    }
    model.Linear(layer + ".conv.in_proj", 3 * d.hidden, d.hidden, sizes.conv_bias);
    model.Linear(layer + ".conv.out_proj", d.hidden, d.hidden, sizes.conv_bias);
    return;
  }
  const std::string module = layer + ".self_attn";
  model.Linear(module + ".q_proj", d.heads * d.head_dim, d.hidden, false);
  model.Linear(module + ".k_proj", d.kv_heads * d.head_dim, d.hidden, false);
  model.Linear(module + ".v_proj", d.kv_heads * d.head_dim, d.hidden, false);
  model.Linear(module + ".out_proj", d.hidden, d.heads * d.head_dim, false);
  model.Norm(module + ".q_layernorm", d.head_dim);
  model.Norm(module + ".k_layernorm", d.head_dim);
}

void AddLfm2Feed(SpecBuilder& model, const std::string& module, const Lfm2MoeSizes& sizes,
                 bool dense) {
  const DecoderSizes& d = sizes.text;
  if (dense) {
    model.Linear(module + ".w1", d.intermediate, d.hidden, false);
    model.Linear(module + ".w3", d.intermediate, d.hidden, false);
    model.Linear(module + ".w2", d.hidden, d.intermediate, false);
    return;
  }
  model.Experts(module + ".experts", sizes.experts, sizes.inner, d.hidden, {"w1", "w3", "w2"});
  model.Weight(module + ".gate.weight", {sizes.experts, d.hidden});
  if (!sizes.expert_bias) return;
  // Always F32, and made on the real device: where a model makes its own buffers is not where it is
  // told to make its parameters.
  TensorSpec& bias = model.Weight(module + ".expert_bias", {sizes.experts});
  bias.kind = TensorKind::kBuffer;
  bias.dtype = at::kFloat;
  bias.requires_grad = false;
  bias.init = InitialValue::kZeros;
  bias.built_real = true;
}

}  // namespace

Result<ModelSpec> DescribeLfm2Moe(const Fields& config) {
  SP_ASSIGN(const Lfm2MoeSizes sizes, Lfm2MoeSizesFrom(config));
  SP_ASSIGN(const at::ScalarType dtype, DtypeFromConfig(config));
  SP_ASSIGN(const bool usual, config.Flag("tie_word_embeddings", true));
  SP_ASSIGN(const bool tied, config.Flag("tie_embedding", usual));
  const DecoderSizes& d = sizes.text;
  SpecBuilder model(dtype);
  model.Weight("model.embed_tokens.weight", {d.vocab, d.hidden});
  for (int64_t i = 0; i < d.layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}", i);
    AddLfm2Mixer(model, layer, sizes, sizes.layer_types[i] == "full_attention");
    AddLfm2Feed(model, layer + ".feed_forward", sizes, i < sizes.dense_layers);
    model.Norm(layer + ".operator_norm", d.hidden);
    model.Norm(layer + ".ffn_norm", d.hidden);
  }
  model.InverseFrequencies("model.pos_emb", d.rotary);
  model.Norm("model.embedding_norm", d.hidden);
  AddHead(model, "model.embed_tokens.weight", d, tied);
  return std::move(model.spec());
}

}  // namespace shardproof
