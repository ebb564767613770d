#include "verify/verdict/scope.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "verify/case/axes.h"

namespace shardproof {
namespace {

const RankEvidence* FindRank(const PhaseEvidence& phase, int64_t rank) {
  for (const RankEvidence& evidence : phase.ranks) {
    if (evidence.rank == rank) return &evidence;
  }
  return nullptr;
}

/// The axes that a rank has a coordinate on: those of the mesh; of one that is laid over some, it
/// and what it leaves of them.
std::vector<AxisCase> AxesOf(const PhaseEvidence& phase) {
  std::vector<AxisCase> axes = phase.mesh;
  for (const AxisCase& axis : phase.laid_over) {
    axes.push_back(RestOf(phase.mesh, axis));
    axes.push_back(axis);
  }
  return axes;
}

/// One for each of AxesOf; none if the rank did not say them.
std::vector<int64_t> CoordinatesOf(const PhaseEvidence& phase, const RankEvidence& rank) {
  if (rank.coordinates.size() < phase.mesh.size()) return {};
  std::vector<int64_t> all(rank.coordinates.begin(),
                           rank.coordinates.begin() + static_cast<long>(phase.mesh.size()));
  for (const AxisCase& axis : phase.laid_over) {
    const auto [rest, own] = CoordinatesOver(phase.mesh, rank.coordinates, axis);
    all.insert(all.end(), {rest, own});
  }
  return all;
}

/// The mesh coordinates that all of these ranks have: ", all dp_shard coordinate 3". Others may
/// have them too, and they still narrow the search.
std::string SharedCoordinates(const PhaseEvidence& phase, const std::vector<int64_t>& ranks) {
  const std::vector<AxisCase> axes = AxesOf(phase);
  std::vector<std::set<int64_t>> seen(axes.size());
  for (const int64_t rank : ranks) {
    const RankEvidence* evidence = FindRank(phase, rank);
    const auto coordinates =
        evidence == nullptr ? std::vector<int64_t>() : CoordinatesOf(phase, *evidence);
    if (coordinates.empty()) return "";
    for (size_t i = 0; i < axes.size(); ++i) seen[i].insert(coordinates[i]);
  }
  std::string shared;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (seen[i].size() != 1 || axes[i].size < 2) continue;
    shared += fmt::format("{}{} coordinate {}", shared.empty() ? ", all " : " and ", axes[i].name,
                          *seen[i].begin());
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

std::string PlacementsText(const std::vector<PlacementRecord>& placements) {
  if (placements.empty()) return "not distributed";
  std::vector<std::string> parts;
  for (const PlacementRecord& placement : placements) {
    const bool cuts = placement.kind.ends_with("shard");
    std::string text = cuts ? fmt::format("{}({})", placement.kind, placement.dim) : placement.kind;
    if (placement.kind == "strided_shard") text += fmt::format("/{}", placement.split_factor);
    parts.push_back(std::move(text));
  }
  return ListSome(parts, parts.size());
}

std::vector<int64_t> Sorted(std::vector<int64_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace shardproof
