// Qwen3VLForConditionalGeneration: a vision tower with side exits and a Qwen3 decoder.
#include <fmt/format.h>

#include "verify/oracle/architectures.h"
#include "verify/oracle/decoder_modules.h"
#include "verify/oracle/vision_config.h"

namespace shardproof::oracle {
namespace {

constexpr int64_t kPositionsMax = kSizeMax;
constexpr int64_t kSideExits = 3;  ///< of the configuration class: after blocks 8, 16 and 24

struct TowerConfig {
  VisionConfig vision;
  int64_t position_count = 2304;
  int64_t side_exit_count = kSideExits;
};

Result<TowerConfig> ReadTower(const Fields& fields) {
  TowerConfig tower;
  SP_ASSIGN(tower.vision, ReadVision(fields, {.depth = 27,
                                              .hidden_size = 1152,
                                              .intermediate_size = 4304,
                                              .patch_size = 16,
                                              .out_hidden_size = 3584}));
  SP_ASSIGN(tower.position_count,
            fields.IntegerOr(tower.position_count, "num_position_embeddings", kPositionsMax));
  SP_ASSIGN(const std::vector<int64_t> exits,
            fields.Integers("deepstack_visual_indexes", 0, kLayersMax, kLayersMax));
  if (fields.Has("deepstack_visual_indexes")) {
    tower.side_exit_count = static_cast<int64_t>(exits.size());
  }
  return tower;
}

/// \param norm_size  hidden_size for the main merger, which norms before patches are merged; the
///   merged size for the side exits, which norm after.
void DeclareMerger(ModelBuilder& model, const VisionConfig& vision, const std::string& at,
                   int64_t norm_size) {
  const int64_t merged = vision.MergedSize();
  model.LayerNorm(at + "norm", norm_size);
  model.Linear(at + "linear_fc1", merged, merged, true);
  model.Linear(at + "linear_fc2", merged, vision.out_hidden_size, true);
}

void DeclareVision(ModelBuilder& model, const TowerConfig& tower, const std::string& prefix) {
  const VisionConfig& vision = tower.vision;
  const int64_t hidden = vision.hidden_size;
  model.Weight(
      prefix + "patch_embed.proj.weight",
      {hidden, vision.channels, vision.temporal_patch_size, vision.patch_size, vision.patch_size});
  model.Bias(prefix + "patch_embed.proj.bias", hidden);
  model.Weight(prefix + "pos_embed.weight", {tower.position_count, hidden});
  model.Rotary(prefix + "rotary_pos_emb", vision.rotary);
  for (int64_t block = 0; block < vision.depth; ++block) {
    const std::string at = fmt::format("{}blocks.{}.", prefix, block);
    model.LayerNorm(at + "norm1", hidden);
    model.LayerNorm(at + "norm2", hidden);
    model.Linear(at + "attn.qkv", hidden, 3 * hidden, true);
    model.Linear(at + "attn.proj", hidden, hidden, true);
    model.Linear(at + "mlp.linear_fc1", hidden, vision.intermediate_size, true);
    model.Linear(at + "mlp.linear_fc2", vision.intermediate_size, hidden, true);
  }
  DeclareMerger(model, vision, prefix + "merger.", hidden);
  for (int64_t side = 0; side < tower.side_exit_count; ++side) {
    DeclareMerger(model, vision, fmt::format("{}deepstack_merger_list.{}.", prefix, side),
                  vision.MergedSize());
  }
}

}  // namespace

Result<DeclaredModel> DeclareQwen3Vl(const Fields& config) {
  if (!config.Has("text_config")) return config.Missing("text_config", "an object");
  SP_ASSIGN(const Fields text, config.Object("text_config"));
  SP_ASSIGN(const DecoderConfig decoder,
            ReadDecoder(text, {.head_dim = 128,
                               .key_value_head_count = 32,
                               .rope = {.theta = 5e5, .max_position_embeddings = 128000}}));
  SP_ASSIGN(const Fields vision_fields, config.Object("vision_config"));
  SP_ASSIGN(const TowerConfig tower, ReadTower(vision_fields));
  // Unlike its predecessor, it does not look for the tie in text_config.
  SP_ASSIGN(const bool tied, config.Bool("tie_word_embeddings", false));
  SP_ASSIGN(const bool bias, text.Bool("attention_bias", false));
  SP_ASSIGN(const std::string outer_dtype, ReadDtype(config));
  SP_ASSIGN(const std::string text_dtype, ReadDtype(text));
  SP_ASSIGN(QuantisedConfig quantised, QuantisedConfig::Read(config, {kBlockFp8}));
  ModelBuilder model(outer_dtype.empty() ? text_dtype : outer_dtype, decoder.initializer_range,
                     std::move(quantised));
  DeclareVision(model, tower, "model.visual.");
  DeclareDecoder(model, decoder, "model.language_model.",
                 {.query_bias = bias, .output_bias = bias, .head_norms = true}, false, tied);
  return model.Finish(config);
}

}  // namespace shardproof::oracle
