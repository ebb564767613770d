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

/// Calls `make` with all combinations if there are at most `all_max`. Otherwise with: nothing lost;
/// everything lost as much as it can be; each loss alone; each item kept alone; `also`; and, if
/// these are fewer than `all_max`, that many more which `seed` determines, some of them equal.
/// \error what `make` returns, which ends it.
Status VisitChoices(const Choices& choices, int64_t all_max, uint64_t seed,
                    const std::function<Status(const Picks&)>& make);

}  // namespace shardproof::crash
