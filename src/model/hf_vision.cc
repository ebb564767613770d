// Vision-language models: Qwen2.5-VL and Qwen3-VL, a tower beside a text decoder.
#include <fmt/format.h>

#include "src/model/hf_decoder.h"
#include "src/model/hf_models.h"
#include "src/model/hf_rope.h"

namespace shardproof {
namespace {

/// What both towers share.
struct TowerSizes {
  int64_t layers = 0, hidden = 0, intermediate = 0, heads = 0, out = 0;
  int64_t channels = 0, patch = 0, frames = 0, merge = 0;
  Rotary rotary;

  int64_t merged() const { return hidden * merge * merge; }
};

/// The library's defaults for what a config leaves out.
struct TowerDefaults {
  int64_t layers, hidden, intermediate, heads, out, patch;
};

Result<TowerSizes> TowerSizesFrom(const Fields& config, const TowerDefaults& defaults) {
  TowerSizes d;
  // The library's common names for these win where a config has both.
  const char* depth = config.Has("num_hidden_layers") ? "num_hidden_layers" : "depth";
  const char* heads = config.Has("num_attention_heads") ? "num_attention_heads" : "num_heads";
  SP_ASSIGN(d.layers, config.Count(depth, defaults.layers, kLayersMax));
  SP_ASSIGN(d.hidden, config.Count("hidden_size", defaults.hidden));
  SP_ASSIGN(d.intermediate, config.Count("intermediate_size", defaults.intermediate));
  SP_ASSIGN(d.heads, config.Count(heads, defaults.heads, kHeadsMax));
  SP_ASSIGN(d.out, config.Count("out_hidden_size", defaults.out));
  SP_ASSIGN(d.channels, config.Count("in_channels", 3, 4096));
  SP_ASSIGN(d.patch, config.Count("patch_size", defaults.patch, 4096));
  SP_ASSIGN(d.frames, config.Count("temporal_patch_size", 2, 4096));
  SP_ASSIGN(d.merge, config.Count("spatial_merge_size", 2, 256));
  const int64_t head_dim = d.hidden / d.heads;
  if (d.hidden % d.heads != 0 || head_dim < 2) {
    return BadInput(
        fmt::format("{}: hidden_size is {}: expected a multiple of {} {}, at "
                    "least 2 a head",
                    config.origin(), d.hidden, heads, d.heads));
  }
  SP_ASSIGN(d.rotary, TowerRotaryFromConfig(config, head_dim));
  return d;
}

void AddPatches(SpecBuilder& model, const std::string& module, const TowerSizes& d, bool bias) {
  model.Weight(module + ".proj.weight", {d.hidden, d.channels, d.frames, d.patch, d.patch});
  if (bias) model.Weight(module + ".proj.bias", {d.hidden}).init = InitialValue::kZeros;
}

void AddTowerAttention(SpecBuilder& model, const std::string& module, int64_t hidden) {
  model.Linear(module + ".qkv", 3 * hidden, hidden, true);
  model.Linear(module + ".proj", hidden, hidden, true);
}

void AddQwen25Tower(SpecBuilder& model, const TowerSizes& d) {
  const std::string tower = "model.visual";
  AddPatches(model, tower + ".patch_embed", d, false);
  model.InverseFrequencies(tower + ".rotary_pos_emb", d.rotary);
  for (int64_t i = 0; i < d.layers; ++i) {
    const std::string block = fmt::format("{}.blocks.{}", tower, i);
    model.Norm(block + ".norm1", d.hidden);
    model.Norm(block + ".norm2", d.hidden);
    AddTowerAttention(model, block + ".attn", d.hidden);
    AddGatedMlp(model, block + ".mlp", d.hidden, d.intermediate, true);
  }
  model.Norm(tower + ".merger.ln_q", d.hidden);
  model.Linear(tower + ".merger.mlp.0", d.merged(), d.merged(), true);
  model.Linear(tower + ".merger.mlp.2", d.out, d.merged(), true);
}

void AddQwen3Merger(SpecBuilder& model, const std::string& module, const TowerSizes& d,
                    int64_t norm) {
  model.Norm(module + ".norm", norm, true);
  model.Linear(module + ".linear_fc1", d.merged(), d.merged(), true);
  model.Linear(module + ".linear_fc2", d.out, d.merged(), true);
}

void AddQwen3Tower(SpecBuilder& model, const TowerSizes& d, int64_t positions, size_t deep) {
  const std::string tower = "model.visual";
  AddPatches(model, tower + ".patch_embed", d, true);
  model.Weight(tower + ".pos_embed.weight", {positions, d.hidden});
  model.InverseFrequencies(tower + ".rotary_pos_emb", d.rotary);
  for (int64_t i = 0; i < d.layers; ++i) {
    const std::string block = fmt::format("{}.blocks.{}", tower, i);
    model.Norm(block + ".norm1", d.hidden, true);
    model.Norm(block + ".norm2", d.hidden, true);
    AddTowerAttention(model, block + ".attn", d.hidden);
    model.Linear(block + ".mlp.linear_fc1", d.intermediate, d.hidden, true);
    model.Linear(block + ".mlp.linear_fc2", d.hidden, d.intermediate, true);
  }
  AddQwen3Merger(model, tower + ".merger", d, d.hidden);
  for (size_t i = 0; i < deep; ++i) {
    AddQwen3Merger(model, fmt::format("{}.deepstack_merger_list.{}", tower, i), d, d.merged());
  }
}

/// Older configs give it in text_config.
Result<at::ScalarType> DtypeOfVision(const Fields& config, const Fields& text) {
  return DtypeFromConfig(config.Has("dtype") || config.Has("torch_dtype") ? config : text);
}

/// A config may leave its tower to the library's defaults.
Result<Fields> VisionFields(const Fields& config) {
  static const nlohmann::json none = nlohmann::json::object();
  if (config.Has("vision_config")) return config.Object("vision_config");
  return Fields(none, config.origin() + ": vision_config");
}

constexpr const char* kText = "model.language_model.";

/// A module by the model's name for it, of one that is named as the checkpoint's keys are.
std::string Qwen25Module(const std::string& name) {
  if (name.starts_with("visual")) return "model." + name;
  const bool known = name.starts_with("model.visual") || name.starts_with("model.language_model");
  if (name.starts_with("model") && !known) return "model.language_model" + name.substr(5);
  return name;
}

}  // namespace

Result<ModelSpec> DescribeQwen25Vl(const Fields& config) {
  const DecoderFamily family{.has_attention_bias = false,
                             .qkv_bias = true,
                             .heads_fill_hidden = true,
                             .rope = {.theta = 1e6, .positions = 32768, .knows_mrope = true},
                             .kv_heads_default = 8};
  nlohmann::json flat = config.object();  // older configs are, and these mean nothing in them
  for (const char* name :
       {"head_dim", "partial_rotary_factor", "original_max_position_embeddings"}) {
    flat.erase(name);
  }
  const bool nested = config.Has("text_config");
  SP_ASSIGN(const Fields text,
            nested ? config.Object("text_config") : Result<Fields>(Fields(flat, config.origin())));
  SP_ASSIGN(const DecoderSizes sizes, DecoderSizesFrom(text, family));
  SP_ASSIGN(const Fields vision, VisionFields(config));
  SP_ASSIGN(const TowerSizes tower, TowerSizesFrom(vision, {32, 3584, 3420, 16, 3584, 14}));
  SP_ASSIGN(const at::ScalarType dtype, DtypeOfVision(config, text));
  SP_ASSIGN(const bool tied, config.Flag("tie_word_embeddings", false));
  SP_ASSIGN(const bool tied_before, text.Flag("tie_word_embeddings", false));  // older configs
  SP_ASSIGN(Quantisation quantisation, QuantisationFromConfig(config, tied || tied_before));
  quantisation.RenameKept(Qwen25Module);
  SpecBuilder model(dtype, std::move(quantisation));
  model.StoreUnder("model.visual.", "visual.");
  AddQwen25Tower(model, tower);
  model.StoreUnder(kText, "model.");
  AddDecoder(model, kText, sizes, family);
  AddHead(model, std::string(kText) + "embed_tokens.weight", sizes, tied || tied_before);
  return std::move(model.spec());
}

Result<ModelSpec> DescribeQwen3Vl(const Fields& config) {
  const DecoderFamily family{.qk_norm = true,
                             .rope = {.theta = 5e5, .positions = 128000},
                             .head_dim_default = 128,
                             .kv_heads_default = 32};
  SP_ASSIGN(const Fields text, config.Object("text_config"));
  SP_ASSIGN(const DecoderSizes sizes, DecoderSizesFrom(text, family));
  SP_ASSIGN(const Fields vision, VisionFields(config));
  SP_ASSIGN(const TowerSizes tower, TowerSizesFrom(vision, {27, 1152, 4304, 16, 3584, 16}));
  SP_ASSIGN(const int64_t positions, vision.Count("num_position_embeddings", 2304));
  SP_ASSIGN(const auto deep, vision.Indices("deepstack_visual_indexes", {8, 16, 24}, kLayersMax));
  SP_ASSIGN(const at::ScalarType dtype, DtypeOfVision(config, text));
  SP_ASSIGN(const bool tied, config.Flag("tie_word_embeddings", false));
  SP_ASSIGN(Quantisation quantisation, QuantisationFromConfig(config, tied));
  SpecBuilder model(dtype, std::move(quantisation));
  AddQwen3Tower(model, tower, positions, deep.size());
  AddDecoder(model, kText, sizes, family);
  AddHead(model, std::string(kText) + "embed_tokens.weight", sizes, tied);
  return std::move(model.spec());
}

}  // namespace shardproof
