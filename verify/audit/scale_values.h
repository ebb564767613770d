// The values of the scales of quantised weights.
#pragma once

#include <optional>
#include <string>

#include "verify/formats/stored.h"
#include "verify/quantised/unit_parts.h"

namespace shardproof {

struct ScaledCodes {
  const formats::StoredTensor& codes;
  const formats::StoredTensor& scale;
  bool is_exponent = false;       ///< as in UnitPart
  std::optional<ScaleGrid> grid;  ///< where codes lie as the weight does
};

/// What is wrong with the first scale that is not finite, negative, or zero where its codes are
/// not; empty if none is. One that may have been rounded to zero is right if not all of them are.
/// Scales that cannot be read are not judged: that is damage of its own.
std::string WrongScale(const formats::StoredCheckpoint& checkpoint, const ScaledCodes& unit);

}  // namespace shardproof
