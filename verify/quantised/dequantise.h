// The numbers that a quantised weight stands for, each with the bound on what it was rounded from.
#pragma once

#include <string>

#include "verify/quantised/rearranged.h"
#include "verify/quantised/unit.h"

namespace shardproof::quantised {

/// How a converter may have taken the parts of a unit for something else.
enum class Misreading {
  kNone,
  kScaleInverted,
  kScaleLeftOut,
  kZeroAhead,   ///< zero points are one too small; where there are none, codes are too large
  kZeroBehind,  ///< one too large
  kGlobalInverted,
  kGlobalTwice,
  kGlobalRoot,
  kGlobalLeftOut,
};

/// What is wrong with a unit that has its right numbers only if it is misread so, and what is wrong
/// with numbers that are those of a unit that was misread so.
struct NamedMisreading {
  Misreading misreading;
  const char* of_unit;
  const char* of_numbers;
};
/// All but kNone.
const std::vector<NamedMisreading>& Misreadings();

/// Numbers of the unit's shape, row by row. \pre it is known; what `open` reads outlives this.
/// \returns null where the unit has not what would be misread.
Reader Dequantise(const Unit& unit, const Opener& open, Misreading misreading);

/// The same of a unit one of whose parts lies otherwise. \pre `part` is one of the unit's.
Reader DequantiseRearranged(const Unit& unit, const Opener& open, const std::string& part,
                            const Rearrangement& rearrangement);

}  // namespace shardproof::quantised
