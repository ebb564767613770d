#include "src/text/nearest.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace shardproof::text {
namespace {

constexpr size_t kLengthMax = 1000;  // what is longer is no mistyped name

/// How many characters must change to make one text the other.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({replaced, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row[b.size()];
}

}  // namespace

std::string Nearest(const std::string& name, const std::vector<std::string>& known) {
  std::string best;
  size_t best_distance = name.size() / 2 + 1;
  if (name.size() > kLengthMax) return best;
  for (const std::string& candidate : known) {
    if (candidate.size() > kLengthMax) continue;
    const size_t distance = EditDistance(candidate, name);
    if (distance >= best_distance) continue;
    best_distance = distance;
    best = candidate;
  }
  return best;
}

}  // namespace shardproof::text
