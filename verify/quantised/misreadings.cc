// What is said of parts that a converter took for something else.
#include "verify/quantised/dequantise.h"

namespace shardproof::quantised {

const std::vector<NamedMisreading>& Misreadings() {
  static const std::vector<NamedMisreading> kAll = {
      {Misreading::kScaleInverted, "the scales are inverted", "the scales were taken inverted"},
      {Misreading::kScaleAhead, "the scales are those of the neighbour block, the one before",
       "the scales of the neighbour block were taken, the next one"},
      {Misreading::kScaleBehind, "the scales are those of the neighbour block, the next one",
       "the scales of the neighbour block were taken, the one before"},
      {Misreading::kScaleRowAhead,
       "the scales are those of the neighbour block, in the row of blocks before",
       "the scales of the neighbour block were taken, in the next row of blocks"},
      {Misreading::kScaleRowBehind,
       "the scales are those of the neighbour block, in the next row of blocks",
       "the scales of the neighbour block were taken, in the row of blocks before"},
      {Misreading::kScaleTransposed, "the scales are transposed", "the scales were transposed"},
      {Misreading::kScaleLeftOut, "the codes are not scaled", "the scales were left out"},
      {Misreading::kHalvesSwapped, "the two halves (nibbles) of each byte are swapped",
       "the two halves (nibbles) of each byte were swapped"},
      {Misreading::kZeroAhead, "the zero points are off by one: too small by one",
       "the zero points were taken off by one: too large by one"},
      {Misreading::kZeroBehind, "the zero points are off by one: too large by one",
       "the zero points were taken off by one: too small by one"},
      {Misreading::kGlobalInverted, "the global scale is inverted",
       "the global scale was taken inverted"},
      {Misreading::kGlobalTwice, "the global scale is the root of what it should be",
       "the global scale was squared"},
      {Misreading::kGlobalRoot, "the global scale is squared",
       "the root of the global scale was taken"},
      {Misreading::kGlobalLeftOut, "the global scale is in the other scales, too",
       "the global scale was left out"},
  };
  return kAll;
}

}  // namespace shardproof::quantised
