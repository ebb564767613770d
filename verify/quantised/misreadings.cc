// What is said of parts that a converter took for something else.
#include "verify/quantised/dequantise.h"

namespace shardproof::quantised {

const std::vector<NamedMisreading>& Misreadings() {
  static const std::vector<NamedMisreading> kAll = {
      {Misreading::kScaleInverted, "the scales are inverted", "the scales were taken inverted"},
      {Misreading::kScaleLeftOut, "the codes are not scaled", "the scales were left out"},
      {Misreading::kZeroAhead, "the zero points are off by one: too small, or the codes too large",
       "the zero points were taken off by one: too large, or the codes too small"},
      {Misreading::kZeroBehind, "the zero points are off by one: too large, or the codes too small",
       "the zero points were taken off by one: too small, or the codes too large"},
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
