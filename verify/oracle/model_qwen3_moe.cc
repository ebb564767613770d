// Qwen3MoeForCausalLM: Qwen3 with experts in some layers or all.
#include <fmt/format.h>

#include <set>

#include "verify/oracle/architectures.h"
#include "verify/oracle/decoder_modules.h"

namespace shardproof::oracle {
namespace {

constexpr ExpertNames kQwen3ExpertNames = {"gate_proj", "up_proj", "down_proj"};

struct MoeConfig {
  ExpertSizes experts;
  int64_t sparse_step = 1;
  std::set<int64_t> dense_layers;

  bool IsSparse(int64_t layer) const {
    return experts.count > 0 && !dense_layers.contains(layer) && (layer + 1) % sparse_step == 0;
  }
};

Result<MoeConfig> ReadMoe(const Fields& config, const DecoderConfig& decoder) {
  MoeConfig moe;
  // The second name is what Transformers 5 writes; both mean one field, and the second is set last.
  SP_ASSIGN(const int64_t experts, config.IntegerOr(128, "num_experts", 0, kHeadsMax));
  SP_ASSIGN(moe.experts.count, config.IntegerOr(experts, "num_local_experts", 0, kHeadsMax));
  moe.experts.hidden_size = decoder.hidden_size;
  SP_ASSIGN(moe.experts.intermediate_size,
            config.IntegerOr(768, "moe_intermediate_size", kSizeMax));
  SP_ASSIGN(moe.sparse_step, config.IntegerOr(1, "decoder_sparse_step", kLayersMax));
  SP_ASSIGN(const std::vector<int64_t> dense,
            config.Integers("mlp_only_layers", 0, kLayersMax, kLayersMax));
  moe.dense_layers = {dense.begin(), dense.end()};
  return moe;
}

}  // namespace

Result<DeclaredModel> DeclareQwen3Moe(const Fields& config) {
  SP_ASSIGN(
      const DecoderConfig decoder,
      ReadDecoder(config, {.key_value_head_count = 4, .rope = {.max_position_embeddings = 32768}}));
  SP_ASSIGN(const MoeConfig moe, ReadMoe(config, decoder));
  SP_ASSIGN(const bool tied, config.Bool("tie_word_embeddings", false));
  SP_ASSIGN(const bool bias, config.Bool("attention_bias", false));
  SP_ASSIGN(const std::string dtype, ReadDtype(config));
  const int64_t hidden = decoder.hidden_size;
  SP_ASSIGN(QuantisedConfig quantised, QuantisedConfig::Read(config, {kBlockFp8}));
  ModelBuilder model(dtype, decoder.initializer_range, std::move(quantised));
  DeclareLanguageModel(model, decoder, "model.", tied, [&] {
    for (int64_t layer = 0; layer < decoder.layer_count; ++layer) {
      const std::string at = fmt::format("model.layers.{}.", layer);
      DeclareAttention(model, decoder, at + "self_attn.",
                       {.query_bias = bias, .output_bias = bias, .head_norms = true});
      if (moe.IsSparse(layer)) {
        model.Experts(at + "mlp.experts", moe.experts, kQwen3ExpertNames);
        model.Weight(at + "mlp.gate.weight", {moe.experts.count, hidden});
      } else {
        DeclareGatedMlp(model, at + "mlp.", hidden, decoder.intermediate_size, false);
      }
      model.Norm(at + "input_layernorm.weight", hidden);
      model.Norm(at + "post_attention_layernorm.weight", hidden);
    }
    model.Norm("model.norm.weight", hidden);
    model.Rotary("model.rotary_emb", decoder.rotary);
  });
  return model.Finish(config);
}

}  // namespace shardproof::oracle
