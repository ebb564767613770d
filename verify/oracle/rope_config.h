// What a config.json says about rotary position embeddings, in any of the spellings that there are.
#pragma once

#include <cstdint>

#include "src/core/result.h"
#include "verify/case/case.h"
#include "verify/oracle/config_fields.h"

namespace shardproof::oracle {

/// Where an architecture's configuration class differs from others of its kind.
struct RopeDefaults {
  double theta = 10000;
  int64_t max_position_embeddings = 2048;
  bool knows_mrope = false;  ///< "mrope" as a kind: an older word for default with mrope_section
};

/// A rotary module's frequencies: what they follow from, and how many there are.
struct RotaryConfig {
  RopeCase rope;
  int64_t count = 0;
};

/// RoPE over heads of `head_dim` (even).
/// \error kBadInput naming the field: an unknown kind, a field that its kind needs and that is not
///   there, one parameter set for each of several layer types, values that cannot be.
Result<RotaryConfig> ReadRope(const Fields& config, const RopeDefaults& defaults, int64_t head_dim);

/// RoPE of a vision tower: kind default over each of two halves of a head of `head_dim`.
Result<RotaryConfig> ReadVisionRope(const Fields& vision, int64_t head_dim);

}  // namespace shardproof::oracle
