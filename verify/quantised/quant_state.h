// What bitsandbytes says of a weight, in bytes of JSON beside it.
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

}  // namespace shardproof
