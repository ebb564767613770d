// Qwen2_5_VLForConditionalGeneration: a vision tower and a Qwen2 decoder.
#include <fmt/format.h>

#include "verify/oracle/architectures.h"
#include "verify/oracle/decoder_modules.h"
#include "verify/oracle/vision_config.h"

namespace shardproof::oracle {
namespace {

void DeclareVision(ModelBuilder& model, const VisionConfig& vision, const std::string& prefix) {
  const int64_t hidden = vision.hidden_size;
  const int64_t merged = vision.MergedSize();
  model.Weight(
      prefix + "patch_embed.proj.weight",
      {hidden, vision.channels, vision.temporal_patch_size, vision.patch_size, vision.patch_size});
  model.Rotary(prefix + "rotary_pos_emb", vision.rotary);
  for (int64_t block = 0; block < vision.depth; ++block) {
    const std::string at = fmt::format("{}blocks.{}.", prefix, block);
    model.Norm(at + "norm1.weight", hidden);
    model.Norm(at + "norm2.weight", hidden);
    model.Linear(at + "attn.qkv", hidden, 3 * hidden, true);
    model.Linear(at + "attn.proj", hidden, hidden, true);
    DeclareGatedMlp(model, at + "mlp.", hidden, vision.intermediate_size, true);
  }
  model.Norm(prefix + "merger.ln_q.weight", hidden);
  model.Linear(prefix + "merger.mlp.0", merged, merged, true);
  model.Linear(prefix + "merger.mlp.2", merged, vision.out_hidden_size, true);
}

/// The first configs have the text's fields at top level, and no text_config; of what there is,
/// Transformers then takes the fields that the text's class declares, which these are not.
Result<Fields> TextFields(const Fields& config) {
  if (config.Has("text_config")) return config.Object("text_config");
  return config.Without({"head_dim", "partial_rotary_factor", "original_max_position_embeddings"});
}

/// Checkpoints have `visual` and `model` for what the model has in one `model`, and their lists of
/// layers may say either.
std::string ModelName(const std::string& name) {
  for (const char* whole : {"model.visual", "model.language_model"}) {
    if (name.starts_with(whole)) return name;
  }
  if (name.starts_with("visual")) return "model." + name;
  return name.starts_with("model") ? "model.language_model" + name.substr(5) : name;
}

/// Configs from before 5 had the tie with the text's other fields; either may say it.
Result<bool> ReadTied(const Fields& config, const Fields& text) {
  SP_ASSIGN(const bool outer, config.Bool("tie_word_embeddings", false));
  SP_ASSIGN(const bool inner, text.Bool("tie_word_embeddings", false));
  return outer || inner;
}

}  // namespace

Result<DeclaredModel> DeclareQwen25Vl(const Fields& config) {
  SP_ASSIGN(const Fields text, TextFields(config));
  SP_ASSIGN(
      const DecoderConfig decoder,
      ReadDecoder(text,
                  {.key_value_head_count = 8,
                   .heads_fill_hidden = true,
                   .rope = {.theta = 1e6, .max_position_embeddings = 32768, .knows_mrope = true}}));
  // Attention takes hidden_size / num_attention_heads whatever head_dim says; RoPE would not.
  if (decoder.head_dim * decoder.head_count != decoder.hidden_size) {
    return text.Wrong("head_dim",
                      fmt::format("hidden_size / num_attention_heads = {}",
                                  decoder.hidden_size / decoder.head_count),
                      decoder.head_dim);
  }
  SP_ASSIGN(const Fields vision_fields, config.Object("vision_config"));
  SP_ASSIGN(const VisionConfig vision, ReadVision(vision_fields, {}));
  SP_ASSIGN(const bool tied, ReadTied(config, text));
  SP_ASSIGN(const std::string outer_dtype, ReadDtype(config));
  SP_ASSIGN(const std::string text_dtype, ReadDtype(text));
  SP_ASSIGN(QuantisedConfig quantised, QuantisedConfig::Read(config, {kBlockFp8}));
  quantised.RenameKept(ModelName);
  ModelBuilder model(outer_dtype.empty() ? text_dtype : outer_dtype, decoder.initializer_range,
                     std::move(quantised));
  model.StoreUnder("model.language_model.", "model.");
  model.StoreUnder("model.visual.", "visual.");
  DeclareVision(model, vision, "model.visual.");
  DeclareDecoder(model, decoder, "model.language_model.", {.query_bias = true}, false, tied);
  return model.Finish(config);
}

}  // namespace shardproof::oracle
