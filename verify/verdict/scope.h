// Which ranks, in words: the part of a finding's first line that says where it shows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verify/evidence/evidence.h"

namespace shardproof {

/// "rank 1 of 2", "all 4 ranks", "ranks 1, 3 of 8", "37 of 512 ranks, all dp_shard coordinate 3".
/// \param ranks sorted, without duplicates.
std::string ScopeLine(const PhaseEvidence& phase, const std::vector<int64_t>& ranks);

/// The hosts of those ranks, each once, sorted.
std::vector<std::string> HostsOf(const PhaseEvidence& phase, const std::vector<int64_t>& ranks);

/// "a, b, c and 5 more".
std::string ListSome(const std::vector<std::string>& names, size_t name_count_max = 5);

/// "[5, 3]", "[]" for a 0-dim tensor.
std::string ShapeText(const std::vector<int64_t>& shape);

/// "replicate, shard(0), strided_shard(0)/2": by axis.
std::string PlacementsText(const std::vector<PlacementRecord>& placements);

/// Sorted, each once.
std::vector<int64_t> Sorted(std::vector<int64_t> ranks);

}  // namespace shardproof
