// The vision_config of Qwen's vision-language models, as far as two generations share it.
#pragma once

#include <cstdint>

#include "src/core/result.h"
#include "verify/oracle/config_fields.h"
#include "verify/oracle/rope_config.h"

namespace shardproof::oracle {

/// A tower's sizes; what they are before reading stands for fields left out.
struct VisionConfig {
  int64_t depth = 32;
  int64_t hidden_size = 3584;
  int64_t intermediate_size = 3420;
  int64_t head_count = 16;
  int64_t channels = 3;
  int64_t patch_size = 14;
  int64_t temporal_patch_size = 2;
  int64_t merge_size = 2;
  int64_t out_hidden_size = 3584;
  RotaryConfig rotary;

  /// Width of the merger: so many patches become one token.
  int64_t MergedSize() const { return hidden_size * merge_size * merge_size; }
};

/// \param vision  the object vision_config; empty: all defaults.
/// \error kBadInput naming the field, what was expected and what was found.
Result<VisionConfig> ReadVision(const Fields& vision, VisionConfig defaults);

}  // namespace shardproof::oracle
