// LlamaForCausalLM and Qwen3ForCausalLM: decoders of equal layers.
#include "verify/oracle/architectures.h"
#include "verify/oracle/decoder_modules.h"

namespace shardproof::oracle {

Result<DeclaredModel> DeclareLlama(const Fields& config) {
  SP_ASSIGN(const DecoderConfig decoder, ReadDecoder(config, {.heads_fill_hidden = true}));
  SP_ASSIGN(const bool tied, config.Bool("tie_word_embeddings", false));
  SP_ASSIGN(const bool attention_bias, config.Bool("attention_bias", false));
  SP_ASSIGN(const bool mlp_bias, config.Bool("mlp_bias", false));
  SP_ASSIGN(const std::string dtype, ReadDtype(config));
  SP_ASSIGN(QuantisedConfig quantised,
            QuantisedConfig::Read(config, {kBlockFp8, kCompressedTensors}));
  ModelBuilder model(dtype, decoder.initializer_range, std::move(quantised));
  DeclareDecoder(model, decoder, "model.",
                 {.query_bias = attention_bias, .output_bias = attention_bias}, mlp_bias, tied);
  return model.Finish(config);
}

Result<DeclaredModel> DeclareQwen3(const Fields& config) {
  SP_ASSIGN(const DecoderConfig decoder,
            ReadDecoder(config, {.head_dim = 128,
                                 .key_value_head_count = 32,
                                 .rope = {.max_position_embeddings = 32768}}));
  SP_ASSIGN(const bool tied, config.Bool("tie_word_embeddings", false));
  SP_ASSIGN(const bool bias, config.Bool("attention_bias", false));
  SP_ASSIGN(const std::string dtype, ReadDtype(config));
  SP_ASSIGN(QuantisedConfig quantised,
            QuantisedConfig::Read(config, {kBlockFp8, kCompressedTensors}));
  ModelBuilder model(dtype, decoder.initializer_range, std::move(quantised));
  // It has no field mlp_bias: its three projections never have one.
  DeclareDecoder(model, decoder, "model.",
                 {.query_bias = bias, .output_bias = bias, .head_norms = true}, false, tied);
  return model.Finish(config);
}

}  // namespace shardproof::oracle
