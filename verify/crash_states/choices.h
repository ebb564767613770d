// Combinations of what may be lost. Internal to the folder.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "src/core/result.h"

namespace shardproof::crash {

/// One number an item: 0, it is kept whole; otherwise which of its losses it is.
using Picks = std::vector<int64_t>;

struct Choices {
  std::vector<int64_t> counts;  ///< by item, 1 + its losses; the last loss is the greatest
  std::vector<Picks> also;      ///< to be made where not all are
};

struct ChoiceLimits {
  int64_t all_max = 1;           ///< so many combinations are made all
  int64_t some_max = INT64_MAX;  ///< if there are more, about so many of those that are told
};

/// Calls `make` with all combinations if there are at most `all_max`. Otherwise with: nothing lost;
/// everything lost as much as it can be; each loss alone; each item kept alone; `also`; and, if
/// these are fewer than `all_max`, that many more which `seed` determines, some of them equal. Of
/// these, if they are more than `some_max`, the first two and that many of the others, evenly.
/// \error what `make` returns, which ends it.
Status VisitChoices(const Choices& choices, const ChoiceLimits& limits, uint64_t seed,
                    const std::function<Status(const Picks&)>& make);

}  // namespace shardproof::crash
