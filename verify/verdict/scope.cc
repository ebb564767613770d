#include "verify/verdict/scope.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace shardproof {
namespace {

const RankEvidence* FindRank(const PhaseEvidence& phase, int64_t rank) {
  for (const RankEvidence& evidence : phase.ranks) {
    if (evidence.rank == rank) return &evidence;
  }
  return nullptr;
}

/// The mesh coordinates that all of these ranks have: ", all dp_shard coordinate 3". Others may
/// have them too, and they still narrow the search.
std::string SharedCoordinates(const PhaseEvidence& phase, const std::vector<int64_t>& ranks) {
  std::string shared;
  for (size_t axis = 0; axis < phase.mesh.size(); ++axis) {
    std::set<int64_t> values;
    for (const int64_t rank : ranks) {
      const RankEvidence* evidence = FindRank(phase, rank);
      if (evidence == nullptr || evidence->coordinates.size() <= axis) return "";
      values.insert(evidence->coordinates[axis]);
    }
    if (values.size() == 1 && phase.mesh[axis].size > 1) {
      shared += fmt::format("{}{} coordinate {}", shared.empty() ? ", all " : " and ",
                            phase.mesh[axis].name, *values.begin());
    }
  }
  return shared;
}

}  // namespace

std::string ScopeLine(const PhaseEvidence& phase, const std::vector<int64_t>& ranks) {
  const size_t world_size = phase.ranks.size();
  if (ranks.empty()) return "no rank";
  if (ranks.size() == 1) return fmt::format("rank {} of {}", ranks[0], world_size);
  if (ranks.size() == world_size) return fmt::format("all {} ranks", world_size);
  const std::string shared = SharedCoordinates(phase, ranks);
  if (ranks.size() <= 4) {
    return fmt::format("ranks {} of {}{}", fmt::join(ranks, ", "), world_size, shared);
  }
  return fmt::format("{} of {} ranks{}", ranks.size(), world_size,
                     shared.empty() ? fmt::format(", first rank {}", ranks[0]) : shared);
}

std::vector<std::string> HostsOf(const PhaseEvidence& phase, const std::vector<int64_t>& ranks) {
  std::set<std::string> hosts;
  for (const int64_t rank : ranks) {
    const RankEvidence* evidence = FindRank(phase, rank);
    if (evidence != nullptr && !evidence->host.empty()) hosts.insert(evidence->host);
  }
  return {hosts.begin(), hosts.end()};
}

std::string ListSome(const std::vector<std::string>& names, size_t name_count_max) {
  if (names.size() <= name_count_max) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{} and {} more",
                     fmt::join(names.begin(), names.begin() + name_count_max, ", "),
                     names.size() - name_count_max);
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::vector<int64_t> Sorted(std::vector<int64_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace shardproof
