// Parts of quantised weights whose elements or bytes lie otherwise than they should, as converters
// write them by mistake.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "verify/maps/tensor_reader.h"
#include "verify/quantised/unit_parts.h"

namespace shardproof::quantised {

struct Rearrangement {
  /// Of the part, for people: "with the bytes of each element reversed". They hold of what changes
  /// back, too.
  std::string words;
  std::function<maps::Reader(maps::Reader part)> apply;
};

/// All that a part of this shape, with elements of so many bytes, can have.
std::vector<Rearrangement> RearrangementsOf(const Shape& shape, uint64_t width);

}  // namespace shardproof::quantised
