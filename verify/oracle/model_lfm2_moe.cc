// Lfm2MoeForCausalLM: short convolutions and attention in turn, experts above the first layers.
#include <fmt/format.h>

#include "verify/oracle/architectures.h"
#include "verify/oracle/decoder_modules.h"
#include "verify/oracle/quote.h"

namespace shardproof::oracle {
namespace {

constexpr ExpertNames kLfm2ExpertNames = {"w1", "w3", "w2"};
constexpr int64_t kKernelMax = 1 << 12;

struct Lfm2Config {
  ExpertSizes experts;
  std::vector<bool> is_attention;  ///< by layer
  int64_t dense_layer_count = 2;
  int64_t kernel_size = 3;
  bool conv_bias = false;
  bool expert_bias = true;
};

Result<std::vector<bool>> ReadLayerTypes(const Fields& config, int64_t layer_count) {
  const std::string expected = fmt::format("{} of conv and full_attention", layer_count);
  if (!config.Has("layer_types")) return config.Missing("layer_types", expected);
  SP_ASSIGN(const std::vector<std::string> types, config.Texts("layer_types", kLayersMax));
  if (static_cast<int64_t>(types.size()) != layer_count) {
    return config.Wrong("layer_types", expected + " (num_hidden_layers)",
                        static_cast<int64_t>(types.size()));
  }
  std::vector<bool> is_attention;
  for (const std::string& type : types) {
    if (type != "conv" && type != "full_attention") {
      return BadInput(fmt::format("{}: layer_types[{}]: expected conv or full_attention, found {}",
                                  config.where(), is_attention.size(), Quote(type)));
    }
    is_attention.push_back(type == "full_attention");
  }
  return is_attention;
}

Result<Lfm2Config> ReadLfm2(const Fields& config, const DecoderConfig& decoder) {
  Lfm2Config lfm2;
  SP_ASSIGN(lfm2.is_attention, ReadLayerTypes(config, decoder.layer_count));
  SP_ASSIGN(lfm2.experts.count, config.IntegerOr(32, "num_experts", kHeadsMax));
  lfm2.experts.hidden_size = decoder.hidden_size;
  SP_ASSIGN(lfm2.experts.intermediate_size,
            config.IntegerOr(1792, "moe_intermediate_size", kSizeMax));
  SP_ASSIGN(lfm2.dense_layer_count, config.IntegerOr(2, "num_dense_layers", 0, kLayersMax));
  SP_ASSIGN(lfm2.kernel_size, config.IntegerOr(3, "conv_L_cache", kKernelMax));
  SP_ASSIGN(lfm2.conv_bias, config.Bool("conv_bias", false));
  SP_ASSIGN(lfm2.expert_bias, config.Bool("use_expert_bias", true));
  return lfm2;
}

void DeclareLfm2Attention(ModelBuilder& model, const DecoderConfig& decoder,
                          const std::string& at) {
  const int64_t hidden = decoder.hidden_size;
  const int64_t query = decoder.head_count * decoder.head_dim;
  const int64_t key_value = decoder.key_value_head_count * decoder.head_dim;
  model.Linear(at + "q_proj", hidden, query, false);
  model.Linear(at + "k_proj", hidden, key_value, false);
  model.Linear(at + "v_proj", hidden, key_value, false);
  model.Linear(at + "out_proj", query, hidden, false);
  model.Norm(at + "q_layernorm.weight", decoder.head_dim);
  model.Norm(at + "k_layernorm.weight", decoder.head_dim);
}

/// A convolution over time, each channel by itself, between two projections.
void DeclareShortConv(ModelBuilder& model, int64_t hidden, const Lfm2Config& lfm2,
                      const std::string& at) {
  model.Weight(at + "conv.weight", {hidden, 1, lfm2.kernel_size});
  if (lfm2.conv_bias) model.Bias(at + "conv.bias", hidden);
  model.Linear(at + "in_proj", hidden, 3 * hidden, lfm2.conv_bias);
  model.Linear(at + "out_proj", hidden, hidden, lfm2.conv_bias);
}

void DeclareFeedForward(ModelBuilder& model, const DecoderConfig& decoder, const Lfm2Config& lfm2,
                        bool is_dense, const std::string& at) {
  const int64_t hidden = decoder.hidden_size;
  if (is_dense) {
    model.Linear(at + "w1", hidden, decoder.intermediate_size, false);
    model.Linear(at + "w3", hidden, decoder.intermediate_size, false);
    model.Linear(at + "w2", decoder.intermediate_size, hidden, false);
    return;
  }
  model.Experts(at + "experts", lfm2.experts, kLfm2ExpertNames);
  model.Weight(at + "gate.weight", {lfm2.experts.count, hidden});
  if (lfm2.expert_bias) model.ExpertBias(at + "expert_bias", lfm2.experts.count);
}

/// Older configs say tie_embedding, which wins. Tied unless something says no.
Result<bool> ReadTied(const Fields& config) {
  SP_ASSIGN(const bool tied, config.Bool("tie_word_embeddings", true));
  return config.Bool("tie_embedding", tied);
}

}  // namespace

Result<DeclaredModel> DeclareLfm2Moe(const Fields& config) {
  SP_ASSIGN(const DecoderConfig decoder,
            ReadDecoder(config, {.key_value_head_count = 8,
                                 .rope = {.theta = 1e6, .max_position_embeddings = 128000}}));
  SP_ASSIGN(const Lfm2Config lfm2, ReadLfm2(config, decoder));
  SP_ASSIGN(const bool tied, ReadTied(config));
  SP_ASSIGN(const std::string dtype, ReadDtype(config));
  const int64_t hidden = decoder.hidden_size;
  ModelBuilder model(dtype, decoder.initializer_range);
  DeclareLanguageModel(model, decoder, "model.", tied, [&] {
    for (int64_t layer = 0; layer < decoder.layer_count; ++layer) {
      const std::string at = fmt::format("model.layers.{}.", layer);
      if (lfm2.is_attention[layer]) {
        DeclareLfm2Attention(model, decoder, at + "self_attn.");
      } else {
        DeclareShortConv(model, hidden, lfm2, at + "conv.");
      }
      DeclareFeedForward(model, decoder, lfm2, layer < lfm2.dense_layer_count,
                         at + "feed_forward.");
      model.Norm(at + "operator_norm.weight", hidden);
      model.Norm(at + "ffn_norm.weight", hidden);
    }
    model.Rotary("model.pos_emb", decoder.rotary);
    model.Norm("model.embedding_norm.weight", hidden);
  });
  return model.Finish(config);
}

}  // namespace shardproof::oracle
