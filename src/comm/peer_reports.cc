#include "src/comm/peer_reports.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>
#include <utility>

namespace shardproof {
namespace {

constexpr const char* kNone = "-";

std::string NameOf(int64_t rank, int64_t own) {
  return rank == own ? "this rank" : fmt::format("rank {}", rank);
}

std::string Ranks(const std::set<int64_t>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

/// Of "1,2" or kNone.
std::vector<int64_t> RanksIn(const std::string& text) {
  std::vector<int64_t> ranks;
  if (text == kNone) return ranks;
  std::istringstream each(text);
  for (std::string rank; std::getline(each, rank, ',');) {
    ranks.push_back(std::strtoll(rank.c_str(), nullptr, 10));
  }
  return ranks;
}

bool Has(const std::vector<int64_t>& ranks, int64_t rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

/// Whether every other rank whose connections broke has lost the one with `rank`.
bool AllHaveLost(const Words& words, int64_t rank) {
  return std::all_of(words.begin(), words.end(), [&](const auto& one) {
    return one.first == rank || one.second.cut.empty() || Has(one.second.cut, rank);
  });
}

/// The ranks that most others, two at least, have lost the connection with.
std::vector<int64_t> MostAccused(const Words& words) {
  std::map<int64_t, int> accusers;
  for (const auto& [rank, word] : words) {
    for (const int64_t other : word.cut) ++accusers[other];
  }
  int most = 2;
  for (const auto& [rank, count] : accusers) most = std::max(most, count);
  std::vector<int64_t> ranks;
  for (const auto& [rank, count] : accusers) {
    if (count == most) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace

std::string ToText(const Word& word) {
  const auto list = [](const std::vector<int64_t>& ranks) {
    return ranks.empty() ? kNone : fmt::format("{}", fmt::join(ranks, ","));
  };
  return fmt::format("{} {} {} {} {} {}", word.number, list(word.cut), list(word.missed),
                     word.waited.count(), word.order, word.what);
}

Word WordFromText(const std::string& text) {
  Word word;
  std::istringstream parts(text);
  std::string cut, missed;
  int64_t waited = 0;
  if (!(parts >> word.number >> cut >> missed >> waited >> word.order)) return {};
  parts.get();
  std::getline(parts, word.what, '\0');
  word.cut = RanksIn(cut);
  word.missed = RanksIn(missed);
  word.waited = std::chrono::milliseconds(waited);
  return word;
}

std::string WhoIsCutOff(const Words& words, int64_t own) {
  std::map<int64_t, std::set<int64_t>> others;  // of each rank, those at the far ends
  for (const auto& [rank, word] : words) {
    for (const int64_t other : word.cut) {
      if (other == rank) continue;
      others[rank].insert(other);
      others[other].insert(rank);
    }
  }
  std::set<int64_t> all;
  for (const auto& [rank, far] : others) all.insert(rank);
  if (all.empty()) return "";
  std::vector<int64_t> lost;
  for (const auto& [rank, far] : others) {
    if (far.size() > 1 && AllHaveLost(words, rank)) lost.push_back(rank);
  }
  if (lost.empty()) lost = MostAccused(words);
  if (lost.size() == 1) {
    return fmt::format("{} (its connections with {} are broken)", NameOf(lost[0], own),
                       Ranks(others[lost[0]]));
  }
  // Of one connection nobody can tell which end it is; this rank at least knows the other.
  if (all.size() == 2 && all.contains(own)) {
    all.erase(own);
    return fmt::format("{} (this rank's connection with it is broken)", Ranks(all));
  }
  return fmt::format("the connection{} of {}", all.size() == 2 ? "" : "s", Ranks(all));
}

bool IsCutOffForCertain(const Words& words) {
  std::map<int64_t, int> accusers;
  for (const auto& [rank, word] : words) {
    for (const int64_t other : word.cut) ++accusers[other];
  }
  const auto is_certain = [&](const auto& one) {
    return one.second > 1 && AllHaveLost(words, one.first);
  };
  return std::count_if(accusers.begin(), accusers.end(), is_certain) == 1;
}

std::string WhoIsElsewhere(const Words& words, int64_t own) {
  using Collective = std::pair<int64_t, std::string>;
  std::map<Collective, std::vector<int64_t>> by_collective;
  for (const auto& [rank, word] : words) by_collective[{word.number, word.what}].push_back(rank);
  if (by_collective.size() < 2) return "";
  size_t most = 0;
  for (const auto& [collective, ranks] : by_collective) most = std::max(most, ranks.size());
  std::vector<std::string> odd;
  for (const auto& [collective, ranks] : by_collective) {
    const bool is_own = Has(ranks, own);
    // Where none is that of most, whatever is not this rank's.
    if (ranks.size() == most && (most * 2 > words.size() || is_own)) continue;
    for (const int64_t rank : ranks) {
      odd.push_back(fmt::format("{} (it is at its collective {}, {})", NameOf(rank, own),
                                collective.first, collective.second));
    }
  }
  return fmt::format("{}", fmt::join(odd, " and "));
}

std::string WhoCameLate(const Words& words, int64_t own, std::chrono::milliseconds bound) {
  std::vector<std::string> late;
  for (const auto& [rank, word] : words) {
    std::chrono::milliseconds longest{0};
    int64_t first = rank;
    for (const auto& [other, theirs] : words) {
      const bool is_same = theirs.number == word.number && theirs.what == word.what;
      const bool was_before = theirs.order > 0 && theirs.order < word.order;
      if (!is_same || !was_before || theirs.waited - word.waited <= longest) continue;
      longest = theirs.waited - word.waited;
      first = other;
    }
    if (longest <= bound) continue;
    late.push_back(fmt::format("{} (it came {:.1f} s after {})", NameOf(rank, own),
                               std::chrono::duration<double>(longest).count(), NameOf(first, own)));
  }
  return fmt::format("{}", fmt::join(late, " and "));
}

std::string WhoWasMissed(const Words& words, int64_t own) {
  std::map<int64_t, std::set<int64_t>> by;
  for (const auto& [rank, word] : words) {
    for (const int64_t missed : word.missed) by[missed].insert(rank);
  }
  std::vector<std::string> missed;
  for (const auto& [rank, ranks] : by) {
    missed.push_back(fmt::format("{} ({} {} waited for it in vain)", NameOf(rank, own),
                                 Ranks(ranks), ranks.size() == 1 ? "has" : "have"));
  }
  return fmt::format("{}", fmt::join(missed, " and "));
}

}  // namespace shardproof
