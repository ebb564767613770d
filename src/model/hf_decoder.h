// What text decoders share: sizes, attention with rotary positions, a gated MLP.
#pragma once

#include <optional>
#include <string>

#include "src/model/hf_builder.h"
#include "src/model/hf_fields.h"
#include "src/model/hf_rope.h"

namespace shardproof {

/// How an architecture differs from Llama.
struct DecoderFamily {
  bool qk_norm = false;            ///< a norm on each head's queries and keys
  bool has_mlp_bias = false;       ///< whether its config knows `mlp_bias`
  bool has_attention_bias = true;  ///< whether its config knows `attention_bias`
  bool qkv_bias = false;           ///< queries, keys and values always have a bias, outputs never
  bool hidden_divides = false;     ///< whether heads must divide hidden_size even with a head_dim
  bool heads_fill_hidden = false;  ///< whether head_dim is hidden_size / heads, whatever it says
  RopeDefaults rope = {};
  /// The Transformers library's own defaults where they are constants, for a config that is silent;
  /// elsewhere they follow from the other sizes.
  std::optional<int64_t> head_dim_default = {};
  std::optional<int64_t> kv_heads_default = {};
};

struct DecoderSizes {
  int64_t vocab = 0, hidden = 0, intermediate = 0, layers = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool qkv_bias = false, output_bias = false, mlp_bias = false;
  double initializer_range = 0.02;
  Rotary rotary;
};

/// \error kBadInput naming the field; sizes that contradict each other.
Result<DecoderSizes> DecoderSizesFrom(const Fields& config, const DecoderFamily& family);

/// q_proj, k_proj, v_proj and o_proj, and the norms of heads.
void AddAttention(SpecBuilder& model, const std::string& module, const DecoderSizes& sizes,
                  const DecoderFamily& family);
void AddGatedMlp(SpecBuilder& model, const std::string& module, int64_t hidden,
                 int64_t intermediate, bool bias);
/// Both norms of a layer, as Llama names them.
void AddLayerNorms(SpecBuilder& model, const std::string& layer, int64_t hidden);

/// A whole decoder under `prefix` ("model."), dense in every layer; then lm_head, tied or not.
void AddDecoder(SpecBuilder& model, const std::string& prefix, const DecoderSizes& sizes,
                const DecoderFamily& family);
void AddHead(SpecBuilder& model, const std::string& embedding, const DecoderSizes& sizes,
             bool tied);

}  // namespace shardproof
