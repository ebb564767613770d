#include "verify/oracle/decoder_modules.h"

#include <fmt/format.h>

namespace shardproof::oracle {

void DeclareAttention(ModelBuilder& model, const DecoderConfig& config, const std::string& prefix,
                      const AttentionStyle& style) {
  const int64_t hidden = config.hidden_size;
  const int64_t query = config.head_count * config.head_dim;
  const int64_t key_value = config.key_value_head_count * config.head_dim;
  model.Linear(prefix + "q_proj", hidden, query, style.query_bias);
  model.Linear(prefix + "k_proj", hidden, key_value, style.query_bias);
  model.Linear(prefix + "v_proj", hidden, key_value, style.query_bias);
  model.Linear(prefix + "o_proj", query, hidden, style.output_bias);
  if (!style.head_norms) return;
  model.Norm(prefix + "q_norm.weight", config.head_dim);
  model.Norm(prefix + "k_norm.weight", config.head_dim);
}

void DeclareGatedMlp(ModelBuilder& model, const std::string& prefix, int64_t hidden,
                     int64_t intermediate, bool bias) {
  model.Linear(prefix + "gate_proj", hidden, intermediate, bias);
  model.Linear(prefix + "up_proj", hidden, intermediate, bias);
  model.Linear(prefix + "down_proj", intermediate, hidden, bias);
}

void DeclareDecoder(ModelBuilder& model, const DecoderConfig& config, const std::string& prefix,
                    const AttentionStyle& style, bool mlp_bias, bool tied) {
  const int64_t hidden = config.hidden_size;
  DeclareLanguageModel(model, config, prefix, tied, [&] {
    for (int64_t layer = 0; layer < config.layer_count; ++layer) {
      const std::string at = fmt::format("{}layers.{}.", prefix, layer);
      DeclareAttention(model, config, at + "self_attn.", style);
      DeclareGatedMlp(model, at + "mlp.", hidden, config.intermediate_size, mlp_bias);
      model.Norm(at + "input_layernorm.weight", hidden);
      model.Norm(at + "post_attention_layernorm.weight", hidden);
    }
    model.Norm(prefix + "norm.weight", hidden);
    model.Rotary(prefix + "rotary_emb", config.rotary);
  });
}

}  // namespace shardproof::oracle
