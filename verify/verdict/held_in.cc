#include "verify/verdict/held_in.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "verify/case/axes.h"
#include "verify/verdict/holders.h"
#include "verify/verdict/select.h"

namespace shardproof {
namespace {

constexpr size_t kRanksListed = 8;

/// "ranks 0, 1", or of many how many and which are the first and the last.
std::string RanksText(const std::vector<int64_t>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
  if (ranks.size() <= kRanksListed) return fmt::format("ranks {}", fmt::join(ranks, ", "));
  return fmt::format("{} ranks from {} to {}", ranks.size(), ranks.front(), ranks.back());
}

/// How a rank holds a tensor, without saying which ranks do so together.
std::string HowHeld(const PhaseEvidence& phase, const RankEvidence& rank,
                    const TensorDescriptor& descriptor, const GroupsRecord& groups) {
  if (!descriptor.placements.empty()) {
    return "on the mesh " + MeshText(MeshOf(phase, rank, descriptor).axes);
  }
  if (!groups.stated) return "on ranks that nobody named";
  if (groups.members.size() == static_cast<size_t>(phase.WorldSize())) {
    return fmt::format("whole on each of {} ranks", phase.WorldSize());
  }
  if (groups.members.size() == 1) return "of one rank alone";
  return fmt::format("whole on each rank of a group of {}", groups.members.size());
}

}  // namespace

std::optional<HeldIn> FindHeldIn(const PhaseEvidence& phase, const std::string& stage,
                                 const std::string& tensor, int64_t rank) {
  if (rank < 0 || rank >= phase.WorldSize()) return std::nullopt;
  const RankEvidence& evidence = phase.ranks[static_cast<size_t>(rank)];
  const TensorDescriptor* descriptor = FindTensor(evidence, stage, tensor).descriptor;
  const GroupsRecord* groups = descriptor == nullptr ? nullptr : evidence.Groups(*descriptor);
  if (groups == nullptr) return std::nullopt;
  HeldIn held{.rank = rank, .groups = *groups};
  if (descriptor->placements.empty()) return held;
  const MeshOfTensor mesh = MeshOf(phase, evidence, *descriptor);
  held.mesh = MeshText(mesh.axes);
  for (size_t i = 0; i < std::min(mesh.axes.size(), mesh.coordinates.size()); ++i) {
    held.coordinates.emplace_back(mesh.axes[i].name, mesh.coordinates[i]);
  }
  return held;
}

std::string HeldInText(const HeldIn& held) {
  std::string text = fmt::format("rank {}", held.rank);
  if (!held.mesh.empty()) {
    std::vector<std::string> at;
    for (const auto& [axis, coordinate] : held.coordinates) {
      at.push_back(fmt::format("{} {}", axis, coordinate));
    }
    text += fmt::format(" at {} of mesh {}", fmt::join(at, ", "), held.mesh);
  }
  const GroupsRecord& groups = held.groups;
  if (!groups.stated) return text + "; nothing says which ranks hold the same";
  if (groups.members.size() == 1) return text + " alone holds it";
  if (groups.whole.size() == 1) {
    std::vector<int64_t> others = groups.members;
    std::erase(others, held.rank);
    return text + fmt::format(" has it whole, as {} {}", others.size() == 1 ? "has" : "have",
                              RanksText(others));
  }
  text += fmt::format("; {} make it up", RanksText(groups.whole));
  if (groups.alike.size() > 1)
    text += fmt::format(", {} have the same part", RanksText(groups.alike));
  return text;
}

nlohmann::json HeldInToJson(const HeldIn& held) {
  nlohmann::json json = {{"rank", held.rank},
                         {"whole", held.groups.whole},
                         {"alike", held.groups.alike},
                         {"members", held.groups.members},
                         {"stated", held.groups.stated},
                         {"text", HeldInText(held)}};
  if (held.mesh.empty()) return json;
  json["mesh"] = held.mesh;
  json["coordinates"] = nlohmann::json::object();
  for (const auto& [axis, coordinate] : held.coordinates) json["coordinates"][axis] = coordinate;
  return json;
}

std::vector<HeldCount> CountHeld(const PhaseEvidence& phase, const std::string& stage) {
  std::vector<HeldCount> counts;
  std::map<std::string, size_t> place_of;
  for (const std::string& name : TensorNames(phase, stage)) {
    for (const RankEvidence& rank : phase.ranks) {
      const TensorDescriptor* descriptor = FindTensor(rank, stage, name).descriptor;
      const GroupsRecord* groups = descriptor == nullptr ? nullptr : rank.Groups(*descriptor);
      if (groups == nullptr) continue;
      const std::string how = HowHeld(phase, rank, *descriptor, *groups);
      const auto [place, is_new] = place_of.emplace(how, counts.size());
      if (is_new) counts.push_back({how, 0});
      ++counts[place->second].tensors;
      break;
    }
  }
  return counts;
}

}  // namespace shardproof
