#include "verify/oracle/vision_config.h"

#include <fmt/format.h>

#include "verify/oracle/decoder_config.h"

namespace shardproof::oracle {
namespace {

constexpr int64_t kPatchMax = 1 << 12;
constexpr int64_t kMergeMax = 1 << 8;

}  // namespace

Result<VisionConfig> ReadVision(const Fields& vision, VisionConfig config) {
  // Transformers maps its general names for two fields onto the tower's own, after these were set.
  const auto name = [&](const char* general, const char* own) {
    return vision.Has(general) ? general : own;
  };
  SP_ASSIGN(config.depth,
            vision.IntegerOr(config.depth, name("num_hidden_layers", "depth"), kLayersMax));
  SP_ASSIGN(config.hidden_size, vision.IntegerOr(config.hidden_size, "hidden_size", kSizeMax));
  SP_ASSIGN(config.intermediate_size,
            vision.IntegerOr(config.intermediate_size, "intermediate_size", kSizeMax));
  SP_ASSIGN(
      config.head_count,
      vision.IntegerOr(config.head_count, name("num_attention_heads", "num_heads"), kHeadsMax));
  SP_ASSIGN(config.channels, vision.IntegerOr(config.channels, "in_channels", kPatchMax));
  SP_ASSIGN(config.patch_size, vision.IntegerOr(config.patch_size, "patch_size", kPatchMax));
  SP_ASSIGN(config.temporal_patch_size,
            vision.IntegerOr(config.temporal_patch_size, "temporal_patch_size", kPatchMax));
  SP_ASSIGN(config.merge_size,
            vision.IntegerOr(config.merge_size, "spatial_merge_size", kMergeMax));
  SP_ASSIGN(config.out_hidden_size,
            vision.IntegerOr(config.out_hidden_size, "out_hidden_size", kSizeMax));
  const int64_t head_dim = config.hidden_size / config.head_count;
  if (config.hidden_size % config.head_count != 0 || head_dim < 2) {
    return vision.Wrong(
        "hidden_size",
        fmt::format("a multiple of num_heads {}, at least 2 a head", config.head_count),
        config.hidden_size);
  }
  SP_ASSIGN(config.rotary, ReadVisionRope(vision, head_dim));
  return config;
}

}  // namespace shardproof::oracle
