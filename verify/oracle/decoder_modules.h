// Modules that Llama's descendants share.
#pragma once

#include <string>

#include "verify/oracle/model_builder.h"

namespace shardproof::oracle {

/// Where an attention block differs from Llama's: biases, and norms over each head.
struct AttentionStyle {
  bool query_bias = false;  ///< of q_proj, k_proj and v_proj
  bool output_bias = false;
  bool head_norms = false;  ///< q_norm and k_norm
};

/// q_proj, k_proj, v_proj and o_proj under `prefix`.
void DeclareAttention(ModelBuilder& model, const DecoderConfig& config, const std::string& prefix,
                      const AttentionStyle& style);

/// gate_proj, up_proj and down_proj under `prefix`.
void DeclareGatedMlp(ModelBuilder& model, const std::string& prefix, int64_t hidden,
                     int64_t intermediate, bool bias);

/// A decoder of equal layers: embeddings, attention, gated MLP, two norms a layer, last norm and
/// rotary module under `prefix` ("model."), and lm_head.
void DeclareDecoder(ModelBuilder& model, const DecoderConfig& config, const std::string& prefix,
                    const AttentionStyle& style, bool mlp_bias, bool tied);

/// Embeddings first and lm_head last, tied or not, around what `layers` adds.
template <typename Layers>
void DeclareLanguageModel(ModelBuilder& model, const DecoderConfig& config,
                          const std::string& prefix, bool tied, const Layers& layers) {
  const std::string embedding = prefix + "embed_tokens.weight";
  model.Weight(embedding, {config.vocab_size, config.hidden_size});
  layers();
  model.Linear("lm_head", config.hidden_size, config.vocab_size, false);
  if (tied) model.Tie(embedding, "lm_head.weight");
}

}  // namespace shardproof::oracle
