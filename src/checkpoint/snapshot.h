// A job as it is at one moment, in memory of its own: what is saved while the job goes on.
#pragma once

#include "src/contract/job.h"
#include "src/model/model.h"

namespace shardproof {

/// Copies what a save reads of a model: parameters, buffers, the optimizer's groups and state, the
/// step and the random number generator. In the host's memory, as much as this rank's shards take.
/// \error as Device::Allocate.
Result<Model> TakeSnapshot(const Model& model, World& world);

}  // namespace shardproof
