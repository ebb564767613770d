// The values of the scales of quantised weights.
#pragma once

#include <optional>
#include <string>

#include "verify/audit/unit_parts.h"
#include "verify/formats/stored.h"

namespace shardproof {

struct ScaledCodes {
  const formats::StoredTensor& codes;
  const formats::StoredTensor& scale;
  bool is_exponent = false;       ///< as in UnitPart
  std::optional<ScaleGrid> grid;  ///< where codes lie as the weight does
};

/// What is wrong with the first scale that is not finite, negative, or zero where its codes are
/// not; empty if none is. Scales that cannot be read are not judged: that is damage of its own.
std::string WrongScale(const formats::StoredCheckpoint& checkpoint, const ScaledCodes& unit);

/// How bitsandbytes cut a weight into blocks.
struct CodeBlocks {
  uint64_t elements = 0;  ///< of the weight
  uint64_t size = 0;      ///< of a block, elements
};

/// \param state  the tensor of bytes that says so. \returns no value if it is not such a text.
std::optional<CodeBlocks> ReadBlocks(const formats::StoredCheckpoint& checkpoint,
                                     const formats::StoredTensor& state);

}  // namespace shardproof
