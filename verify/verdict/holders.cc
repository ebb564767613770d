#include "verify/verdict/holders.h"

#include <algorithm>
#include <map>
#include <set>

#include "verify/verdict/select.h"

namespace shardproof {
namespace {

/// Ranks that reach each other by their groups, joined as they come.
class Reached {
 public:
  int64_t RootOf(int64_t rank) {
    int64_t& above = above_.try_emplace(rank, rank).first->second;
    if (above == rank) return rank;
    const int64_t root = RootOf(above);
    above_[rank] = root;
    return root;
  }

  void Join(int64_t a, int64_t b) { above_[RootOf(b)] = RootOf(a); }

 private:
  std::map<int64_t, int64_t> above_;
};

}  // namespace

bool Holders::Expects(int64_t rank) const {
  return everywhere || std::binary_search(expected.begin(), expected.end(), rank);
}

Holders HoldersOf(const PhaseEvidence& phase, const StageKey& stage, const std::string& tensor) {
  Holders holders;
  Reached reached;
  std::vector<int64_t> ranks;
  bool named_once = false;
  std::set<std::vector<int64_t>> distinct;  // most ranks say the same as others
  for (const RankEvidence& rank : phase.ranks) {
    const TensorDescriptor* descriptor = FindTensor(rank, stage, tensor).descriptor;
    if (descriptor == nullptr) continue;
    const GroupsRecord* groups = rank.Groups(*descriptor);
    if (groups != nullptr && !groups->stated) {
      holders.unstated.push_back(rank.rank);
      continue;
    }
    ranks.push_back(rank.rank);
    if (groups == nullptr) {
      holders.everywhere = true;
      continue;
    }
    named_once = named_once || groups->named_once;
    if (!distinct.insert(groups->members).second) continue;
    for (const int64_t member : groups->members) reached.Join(rank.rank, member);
    holders.expected.insert(holders.expected.end(), groups->members.begin(), groups->members.end());
  }
  holders.everywhere = holders.everywhere || (ranks.empty() && holders.unstated.empty());
  std::sort(holders.expected.begin(), holders.expected.end());
  holders.expected.erase(std::unique(holders.expected.begin(), holders.expected.end()),
                         holders.expected.end());
  const bool is_one = holders.everywhere || named_once;
  std::map<int64_t, size_t> place_of;
  for (const int64_t rank : ranks) {
    const int64_t root = is_one ? ranks.front() : reached.RootOf(rank);
    const auto [place, is_new] = place_of.emplace(root, holders.tensors.size());
    if (is_new) holders.tensors.emplace_back();
    holders.tensors[place->second].push_back(rank);
  }
  return holders;
}

std::vector<Image> ReplicasOf(const std::vector<int64_t>& holders,
                              const std::vector<Image>& images) {
  std::vector<Image> replicas;
  for (const Image& image : images) {
    const std::vector<int64_t> ranks = image.Ranks();
    const bool is_one = std::any_of(ranks.begin(), ranks.end(), [&](int64_t rank) {
      return std::binary_search(holders.begin(), holders.end(), rank);
    });
    if (is_one) replicas.push_back(image);
  }
  return replicas;
}

bool AreUnevenParts(const PhaseEvidence& phase, const StageKey& stage, const std::string& tensor,
                    const std::vector<int64_t>& holders) {
  const TensorDescriptor* first = nullptr;
  bool uneven = false;
  for (const int64_t rank : holders) {
    const TensorDescriptor& own =
        *FindTensor(phase.ranks[static_cast<size_t>(rank)], stage, tensor).descriptor;
    if (!own.in_turn || own.placements.empty()) return false;
    if (first == nullptr) first = &own;
    const int64_t cut = own.placements[0].dim;
    const auto is_along = [&](const PlacementRecord& placement) { return placement.dim == cut; };
    if (!std::all_of(own.placements.begin(), own.placements.end(), is_along)) return false;
    if (own.shape.size() != first->shape.size() || cut != first->placements[0].dim) return false;
    for (size_t dim = 0; dim < own.shape.size(); ++dim) {
      const bool differs = own.shape[dim] != first->shape[dim];
      if (differs && static_cast<int64_t>(dim) != cut) return false;
      uneven = uneven || differs;
    }
  }
  return uneven;
}

MeshOfTensor MeshOf(const PhaseEvidence& phase, const RankEvidence& rank,
                    const TensorDescriptor& descriptor) {
  if (descriptor.mesh < 0) return {phase.mesh, rank.coordinates};
  const MeshRecord& mesh = rank.meshes.at(static_cast<size_t>(descriptor.mesh));
  return {mesh.axes, mesh.coordinates};
}

}  // namespace shardproof
