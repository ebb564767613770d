#include "src/model/hf_decoder.h"

#include <fmt/format.h>

#include <cmath>

#include "src/model/hf_models.h"

namespace shardproof {
namespace {

/// Where the sizes of the heads contradict each other.
Status CheckHeads(const Fields& config, const DecoderFamily& family, const DecoderSizes& d) {
  const bool derived = !config.Has("head_dim") && !family.head_dim_default;
  const bool must_divide = family.heads_fill_hidden || family.hidden_divides || derived;
  if (must_divide && d.hidden % d.heads != 0) {
    return config.Wrong("hidden_size",
                        fmt::format("a multiple of num_attention_heads {}", d.heads));
  }
  if (d.heads % d.kv_heads != 0) {
    return BadInput(
        fmt::format("{}: field 'num_key_value_heads' is {}: expected a divisor of "
                    "num_attention_heads {}",
                    config.origin(), d.kv_heads, d.heads));
  }
  if (d.head_dim % 2 != 0) {
    return BadInput(fmt::format("{}: head_dim is {}: expected an even number, RoPE turns pairs",
                                config.origin(), d.head_dim));
  }
  if (family.heads_fill_hidden && d.head_dim * d.heads != d.hidden) {
    return config.Wrong("head_dim",
                        fmt::format("hidden_size / num_attention_heads = {}", d.hidden / d.heads));
  }
  return Ok();
}

/// For a config without num_key_value_heads. That they are null says: as many as heads, whatever
/// the library's default is.
int64_t DefaultKvHeads(const Fields& config, const DecoderFamily& family, int64_t heads) {
  if (config.object().contains("num_key_value_heads")) return heads;
  return family.kv_heads_default.value_or(heads);
}

}  // namespace

Result<DecoderSizes> DecoderSizesFrom(const Fields& config, const DecoderFamily& family) {
  DecoderSizes d;
  SP_ASSIGN(d.vocab, config.Count("vocab_size"));
  SP_ASSIGN(d.hidden, config.Count("hidden_size"));
  SP_ASSIGN(d.intermediate, config.Count("intermediate_size"));
  SP_ASSIGN(d.layers, config.Count("num_hidden_layers", {}, kLayersMax));
  SP_ASSIGN(d.heads, config.Count("num_attention_heads", {}, kHeadsMax));
  SP_ASSIGN(d.kv_heads, config.Count("num_key_value_heads", DefaultKvHeads(config, family, d.heads),
                                     kHeadsMax));
  const int64_t derived = std::max<int64_t>(d.hidden / d.heads, 1);
  SP_ASSIGN(d.head_dim,
            config.Count("head_dim", family.head_dim_default.value_or(derived), kHeadsMax));
  SP_TRY(CheckHeads(config, family, d));
  d.qkv_bias = family.qkv_bias;
  if (family.has_attention_bias) {
    SP_ASSIGN(d.qkv_bias, config.Flag("attention_bias", false));
    d.output_bias = d.qkv_bias;
  }
  if (family.has_mlp_bias) {
    SP_ASSIGN(d.mlp_bias, config.Flag("mlp_bias", false));
  }
  SP_ASSIGN(d.initializer_range, config.Positive("initializer_range", 0.02));
  SP_ASSIGN(d.rotary, RotaryFromConfig(config, d.head_dim, family.rope));
  return d;
}

void AddAttention(SpecBuilder& model, const std::string& module, const DecoderSizes& d,
                  const DecoderFamily& family) {
  model.Linear(module + ".q_proj", d.heads * d.head_dim, d.hidden, d.qkv_bias);
  model.Linear(module + ".k_proj", d.kv_heads * d.head_dim, d.hidden, d.qkv_bias);
  model.Linear(module + ".v_proj", d.kv_heads * d.head_dim, d.hidden, d.qkv_bias);
  model.Linear(module + ".o_proj", d.hidden, d.heads * d.head_dim, d.output_bias);
  if (!family.qk_norm) return;
  model.Norm(module + ".q_norm", d.head_dim);
  model.Norm(module + ".k_norm", d.head_dim);
}

void AddGatedMlp(SpecBuilder& model, const std::string& module, int64_t hidden,
                 int64_t intermediate, bool bias) {
  model.Linear(module + ".gate_proj", intermediate, hidden, bias);
  model.Linear(module + ".up_proj", intermediate, hidden, bias);
  model.Linear(module + ".down_proj", hidden, intermediate, bias);
}

void AddLayerNorms(SpecBuilder& model, const std::string& layer, int64_t hidden) {
  model.Norm(layer + ".input_layernorm", hidden);
  model.Norm(layer + ".post_attention_layernorm", hidden);
}

void AddDecoder(SpecBuilder& model, const std::string& prefix, const DecoderSizes& d,
                const DecoderFamily& family) {
  model.Weight(prefix + "embed_tokens.weight", {d.vocab, d.hidden});
  for (int64_t i = 0; i < d.layers; ++i) {
    const std::string layer = fmt::format("{}layers.{}", prefix, i);
    AddAttention(model, layer + ".self_attn", d, family);
    AddGatedMlp(model, layer + ".mlp", d.hidden, d.intermediate, d.mlp_bias);
    AddLayerNorms(model, layer, d.hidden);
  }
  model.Norm(prefix + "norm", d.hidden);
  model.InverseFrequencies(prefix + "rotary_emb", d.rotary);
}

void AddHead(SpecBuilder& model, const std::string& embedding, const DecoderSizes& d, bool tied) {
  model.Linear("lm_head", d.vocab, d.hidden, false);
  if (tied) model.spec().ties.push_back({embedding, "lm_head.weight"});
  model.spec().init_scale = d.initializer_range * std::sqrt(3.0);
}

namespace {

Result<ModelSpec> DescribeDense(const Fields& config, const DecoderFamily& family) {
  SP_ASSIGN(const DecoderSizes sizes, DecoderSizesFrom(config, family));
  SP_ASSIGN(const at::ScalarType dtype, DtypeFromConfig(config));
  SP_ASSIGN(const bool tied, config.Flag("tie_word_embeddings", false));
  SP_ASSIGN(Quantisation quantisation, QuantisationFromConfig(config, tied));
  SpecBuilder model(dtype, std::move(quantisation));
  AddDecoder(model, "model.", sizes, family);
  AddHead(model, "model.embed_tokens.weight", sizes, tied);
  return std::move(model.spec());
}

}  // namespace

Result<ModelSpec> DescribeLlama(const Fields& config) {
  return DescribeDense(config, {.has_mlp_bias = true, .hidden_divides = true});
}

Result<ModelSpec> DescribeQwen3(const Fields& config) {
  return DescribeDense(config, {.qk_norm = true,
                                .rope = {.positions = 32768},
                                .head_dim_default = 128,
                                .kv_heads_default = 32});
}

}  // namespace shardproof
