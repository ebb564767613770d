// Optimizer steps on the shards that a rank holds. Every element is computed by the rank that holds
// it, in an order of operations that does not depend on the mesh: the same job gives the same bits
// on every mesh.
#pragma once

#include "src/contract/stages.h"
#include "src/optim/batch.h"
#include "src/optim/optimizer.h"

namespace shardproof {

/// Steps one parameter, which has state, by AdamW.
Status StepParameter(Slot& parameter, const AdamWSettings& settings, const Batch& batch,
                     float gradient_scale, Optimizer& optimizer, World& world);

/// Steps every parameter that has a gradient and is the optimizer's and the model's; one that has
/// no state yet gets it. None is stepped if the loss is scaled and gradients overflow. Collective.
Status StepOptimizer(Model& model, int64_t step, const Stages& stages, const Job& job,
                     World& world);

/// Makes the frozen parameters trainable and puts them into the optimizer's groups.
Status Unfreeze(Model& model);

/// Freezes what was unfrozen. As with torch.optim, the optimizer still holds it, and its state.
Status FreezeAgain(Model& model);

}  // namespace shardproof
