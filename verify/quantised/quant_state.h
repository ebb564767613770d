// What small tensors beside the codes say of a weight: bytes of JSON of bitsandbytes, the shape of
// compressed-tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "verify/maps/tensor_reader.h"

namespace shardproof {

struct QuantState {
  std::vector<int64_t> shape;  ///< of the weight
  uint64_t elements = 0;       ///< likewise
  uint64_t size = 0;           ///< of a block that shares a scale, elements
  uint64_t nested_size = 0;    ///< likewise of scales that are codes themselves; 0: they are not
  double nested_offset = 0;    ///< what is added to such scales
};

/// \param state  the bytes. \returns no value if they are not such a text.
std::optional<QuantState> ReadQuantState(maps::TensorReader& state);

/// The shape of a weight whose codes of `bits` bits lie in words. \param codes  their shape as it
/// is stored. \returns no value if it says none, or one that these codes cannot have.
std::optional<std::vector<int64_t>> ReadPackedShape(maps::TensorReader& stated,
                                                    const std::vector<int64_t>& codes,
                                                    int64_t bits);

}  // namespace shardproof
