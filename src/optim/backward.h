// Gradients of a step: added up over micro-batches, held against the range of their dtype, clipped.
#pragma once

#include <algorithm>

#include "src/contract/stages.h"
#include "src/optim/batch.h"
#include "src/optim/optimizer.h"

namespace shardproof {

/// Calls visit(parameter, group's index) for what a step changes, in the order of the groups.
template <typename Visit>
Status VisitStepped(const Optimizer& optimizer, const Batch& batch, Visit visit) {
  for (size_t index = 0; index < optimizer.groups.size(); ++index) {
    const ParameterGroup& group = optimizer.groups[index];
    for (size_t i = 0; i < std::min(group.tensors.size(), group.slots.size()); ++i) {
      Slot& slot = *group.slots[i];
      // A tensor that the model has no more gets no gradient.
      if (!group.tensors[i].is_same(slot.value)) continue;
      if (!slot.spec.requires_grad || !IsStepped(slot.spec.dtype)) continue;
      if (!batch.without_gradient.contains(slot.spec.name)) SP_TRY(visit(slot, index));
    }
  }
  return Ok();
}

/// Adds up the gradients of the batch's samples in F32 memory, one after the other, each by its
/// part of the whole. \error as Device::Allocate.
Status AccumulateGradients(Model& model, const Batch& batch, const Job& job, World& world);

/// Whether a gradient of any rank is NaN or infinite. Collective.
Result<bool> GradientsOverflow(const Model& model, const Batch& batch, const Job& job,
                               World& world);

/// What the gradients of each group are multiplied by, so that the norm of all of them, or of each
/// group's, over all ranks is at most job.clip_norm; 1 if that is 0. Collective. The norm is exact:
/// it does not depend on the mesh.
Result<std::vector<float>> ClipGradients(const Model& model, const Batch& batch, const Job& job,
                                         World& world);

}  // namespace shardproof
