// The part of the optimizer's work that the host does, for a model whose memory is elsewhere. State
// lies on the host for good; a parameter comes through staging buffers, a piece at a time, and goes
// back stepped. With overlap there are two buffers: one piece is stepped while the next one comes
// and the one before goes.
#pragma once

#include <vector>

#include "src/contract/stages.h"
#include "src/optim/optimizer.h"

namespace shardproof {

/// Steps parameters whose state is on the host; the same bits as where it is on the device. Staging
/// takes at most job.bucket_bytes, but one element at least.
/// \error as Device::Allocate.
Status StepOnHost(const std::vector<HostStep>& parameters, const Batch& batch, Optimizer& optimizer,
                  const Job& job, World& world);

}  // namespace shardproof
