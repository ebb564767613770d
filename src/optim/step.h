// Optimizer steps on the shards that a rank holds. Every element is computed by the rank that holds
// it, in an order of operations that does not depend on the mesh: the same job gives the same bits
// on every mesh.
#pragma once

#include "src/contract/stages.h"
#include "src/optim/optimizer.h"

namespace shardproof {

/// What all gradients of step `step` are multiplied by, so that their norm over all ranks is at
/// most job.clip_norm; 1 if that is 0. Collective. The norm is exact: it does not depend on the
/// mesh.
Result<float> ClipGradients(const Model& model, int64_t step, const Job& job, World& world);

/// Steps one parameter, which has state, by AdamW.
Status StepParameter(Slot& parameter, const AdamWSettings& settings, int64_t step,
                     float gradient_scale, Optimizer& optimizer, World& world);

/// Steps every parameter that requires a gradient and is the optimizer's and the model's; one that
/// has no state yet gets it. Collective.
Status StepOptimizer(Model& model, int64_t step, const Stages& stages, const Job& job,
                     World& world);

/// Makes the frozen parameters trainable and puts them into the optimizer's groups.
Status Unfreeze(Model& model);

}  // namespace shardproof
