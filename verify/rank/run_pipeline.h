// What a phase asks of the reference pipeline on one rank: load, train, save, restore.
#pragma once

#include "src/contract/job.h"
#include "src/contract/stages.h"
#include "verify/rank/worker.h"

namespace shardproof {

Status RunPipeline(const PhaseRun& run, const Job& job, const Stages& stages, World& world);

}  // namespace shardproof
