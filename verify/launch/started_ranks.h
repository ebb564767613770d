// Ranks that torchrun, srun or a shell started, as their environment announces them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/core/result.h"

namespace shardproof {

/// What announces this rank and their number, by name and value: RANK and WORLD_SIZE; or, where
/// RANK is not set and MASTER_ADDR is, srun's SLURM_PROCID and SLURM_STEP_NUM_TASKS.
struct Announced {
  const char* rank_name = "RANK";
  const char* rank = nullptr;  ///< null: this process is no rank that somebody else started
  const char* world_name = "WORLD_SIZE";
  const char* world = nullptr;
};

Announced AnnouncedRank();

/// How many ranks were started, or nothing if none; what is wrong with the number, joining tells.
std::optional<int64_t> StartedRanks();

/// \error kBadInput if this process is one of them: what runs several cases starts its own ranks.
/// \param what  "generated cases run"
Status RefuseStartedRanks(const std::string& what);

}  // namespace shardproof
