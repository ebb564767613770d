// What a training loop keeps beside the optimizer: where its sampler is, and the loss scale.
// Numbers that are alike on all ranks, saved with the optimizer.
#pragma once

#include "src/contract/stages.h"
#include "src/model/loop_keys.h"
#include "src/optim/batch.h"

namespace shardproof {

/// Puts those that the job needs into model.loop, as a job begins with them.
/// \error as Device::Allocate.
Status BeginLoop(Model& model, const Job& job, World& world);

/// What step `step` reads; the sampler moves on by as many samples.
///
/// Without a sampler every micro-batch is a new sample: m of M in step s is (s - 1) M + m. With
/// one, sample p (from 0) of an epoch of n is 1 + order[p], where order is 0 .. n-1 shuffled: for i
/// from n-1 to 1, places i and mix(mix(epoch) ^ i) mod (i + 1) are swapped.
///
/// A parameter has no gradient in a step if mix(mix(step) ^ ~fnv1a64(name)) >> 40 is less than
/// 2^24 times the share of those.
Batch ReadBatch(Model& model, int64_t step, const Job& job);

/// After a step whose gradients did or did not overflow: it is halved, or doubled after two steps
/// in turn that did not. \source torch.amp.GradScaler, with a growth_interval of 2
void UpdateLossScale(Model& model, bool overflowed);

}  // namespace shardproof
