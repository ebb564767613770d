#include "verify/launch/started_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace shardproof {

Announced AnnouncedRank() {
  Announced found;
  found.rank = std::getenv(found.rank_name);
  found.world = std::getenv(found.world_name);
  const char* of_slurm = std::getenv("SLURM_PROCID");
  // Without MASTER_ADDR nobody means the tasks to meet: each is a run of its own.
  if (found.rank != nullptr || of_slurm == nullptr || std::getenv("MASTER_ADDR") == nullptr) {
    return found;
  }
  // Of a batch script that starts nothing by srun only SLURM_NTASKS is set.
  const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  if (tasks == nullptr) return found;
  return {"SLURM_PROCID", of_slurm, "SLURM_STEP_NUM_TASKS", tasks};
}

std::optional<int64_t> StartedRanks() {
  const Announced found = AnnouncedRank();
  if (found.rank == nullptr || found.world == nullptr) return std::nullopt;
  return std::max<int64_t>(1, std::atoll(found.world));
}

Status RefuseStartedRanks(const std::string& what) {
  const Announced found = AnnouncedRank();
  if (found.rank == nullptr) return Ok();
  return BadInput(
      fmt::format("{} is set, but {} on ranks that Shardproof itself starts: run the command once, "
                  "with {} unset",
                  found.rank_name, what, found.rank_name));
}

}  // namespace shardproof
