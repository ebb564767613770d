// Scales as blocks of a weight share them.
#pragma once

#include <functional>

#include "verify/quantised/unit.h"

namespace shardproof::quantised {

/// The shape of scales and how many elements of each dim share one.
struct Blocks {
  Shape scales;
  Shape block;
};

/// \param shape  of the codes, at least two dims. \param scales  as they are stored.
Blocks BlocksOf(const Unit& unit, const Shape& shape, const Shape& scales);

/// The element with the index that `pick` gives, for each of the shape.
using Pick = std::function<uint64_t(uint64_t)>;
Reader Picked(Reader base, Shape shape, Pick pick);

/// One number.
Reader Constant(double value);

}  // namespace shardproof::quantised
