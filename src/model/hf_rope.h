// Which inverse frequencies a config.json asks for.
#pragma once

#include "src/model/hf_builder.h"
#include "src/model/hf_fields.h"

namespace shardproof {

/// What the Transformers library's configuration class says where a config does not.
struct RopeDefaults {
  double theta = 10000.0;
  int64_t positions = 2048;  ///< max_position_embeddings
  bool knows_mrope = false;  ///< an older name for "default", whose sections change no frequency
};

/// Of a text decoder: `rope_scaling`, the older way of writing it, wins over `rope_parameters`;
/// what neither says, `rope_theta` and `partial_rotary_factor` beside them do. \error kBadInput
/// naming the field; an unknown kind with the list of the known ones. \source
/// modeling_rope_utils.py of the Transformers library.
Result<Rotary> RotaryFromConfig(const Fields& config, int64_t head_dim,
                                const RopeDefaults& defaults);

/// Of a vision tower, which turns rows and columns by half of a head's dims each.
Result<Rotary> TowerRotaryFromConfig(const Fields& vision, int64_t head_dim);

}  // namespace shardproof
