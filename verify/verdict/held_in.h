// In which groups of ranks a tensor was judged: whose parts make it up, who has the same part.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "verify/evidence/evidence.h"

namespace shardproof {

/// What one rank said of a tensor that it holds.
struct HeldIn {
  int64_t rank = 0;
  std::string mesh;  ///< "dp_shard_mod_ep 2 x ep 2": what the tensor is distributed over, or empty
  std::vector<std::pair<std::string, int64_t>> coordinates;  ///< of the rank, by axis of that mesh
  GroupsRecord groups;
};

/// \returns nothing where no evidence says it: of the reference, placements and the mesh do.
std::optional<HeldIn> FindHeldIn(const PhaseEvidence& phase, const std::string& stage,
                                 const std::string& tensor, int64_t rank);

/// "rank 1 at ep 1 of mesh dp_shard_mod_ep 2 x ep 2; ranks 0, 1 make it up, ranks 1, 3 have the
/// same part"
std::string HeldInText(const HeldIn& held);

nlohmann::json HeldInToJson(const HeldIn& held);

/// How many tensors were held in one way.
struct HeldCount {
  std::string how;  ///< "on dp_shard 2 x tp 2", "whole on each of 4 ranks"
  uint64_t tensors = 0;
};

/// Of all tensors of a stage, by how the first rank that has one holds it, in the order of the
/// names; none where no evidence says it.
std::vector<HeldCount> CountHeld(const PhaseEvidence& phase, const std::string& stage);

}  // namespace shardproof
