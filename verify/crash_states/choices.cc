#include "verify/crash_states/choices.h"

#include <algorithm>
#include <array>
#include <random>

namespace shardproof::crash {
namespace {

using Make = std::function<Status(const Picks&)>;

/// Whether the product of the counts is at most `all_max`.
bool AreFew(const std::vector<int64_t>& counts, int64_t all_max) {
  int64_t product = 1;
  for (const int64_t count : counts) {
    if (count > all_max / product) return false;
    product *= count;
  }
  return true;
}

Status MakeAll(const std::vector<int64_t>& counts, const Make& make) {
  Picks picks(counts.size(), 0);
  while (true) {
    SP_TRY(make(picks));
    size_t item = 0;
    while (item < picks.size() && ++picks[item] == counts[item]) picks[item++] = 0;
    if (item == picks.size()) return Ok();
  }
}

/// Losses are drawn rare, even and frequent in turn: at even odds alone, next to no state of many
/// items loses only a few.
Picks Draw(const std::vector<int64_t>& counts, int64_t turn, std::mt19937_64& random) {
  constexpr std::array<uint64_t, 3> kLossesInEight = {1, 4, 7};
  Picks picks(counts.size(), 0);
  for (size_t item = 0; item < counts.size(); ++item) {
    if (counts[item] < 2 || random() % 8 >= kLossesInEight[turn % 3]) continue;
    picks[item] = 1 + static_cast<int64_t>(random() % (counts[item] - 1));
  }
  return picks;
}

/// i * some / all, which may be great numbers.
int64_t Share(int64_t i, int64_t some, int64_t all) {
  return static_cast<int64_t>(static_cast<double>(i) * static_cast<double>(some) /
                              static_cast<double>(all));
}

}  // namespace

Status VisitChoices(const Choices& choices, const ChoiceLimits& limits, uint64_t seed,
                    const Make& make) {
  const std::vector<int64_t>& counts = choices.counts;
  if (AreFew(counts, std::min(limits.all_max, limits.some_max))) return MakeAll(counts, make);
  int64_t told = 2 + static_cast<int64_t>(choices.also.size());
  for (const int64_t count : counts) told += count > 1 ? count : 0;
  told = std::max(told, limits.all_max);
  int64_t made = 0;
  const auto counted = [&](const Picks& picks) {
    const int64_t i = made++;
    const bool is_one = told <= limits.some_max || i < 2 ||
                        Share(i, limits.some_max, told) != Share(i - 1, limits.some_max, told);
    return is_one ? make(picks) : Ok();
  };
  const Picks kept(counts.size(), 0);
  Picks lost = kept;
  for (size_t item = 0; item < counts.size(); ++item) lost[item] = counts[item] - 1;
  SP_TRY(counted(kept));
  SP_TRY(counted(lost));
  for (size_t item = 0; item < counts.size(); ++item) {
    if (counts[item] < 2) continue;
    Picks picks = kept;
    for (picks[item] = 1; picks[item] < counts[item]; ++picks[item]) SP_TRY(counted(picks));
    picks = lost;
    picks[item] = 0;
    SP_TRY(counted(picks));
  }
  for (const Picks& picks : choices.also) SP_TRY(counted(picks));
  std::mt19937_64 random(seed);
  for (int64_t turn = 0; made < limits.all_max; ++turn) SP_TRY(counted(Draw(counts, turn, random)));
  return Ok();
}

}  // namespace shardproof::crash
