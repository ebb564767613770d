// Collectives on a transport that takes the other kind of memory than what is to travel: Gloo takes
// the host's, NCCL a GPU's.
#pragma once

#include <memory>

#include "src/seam/communicator.h"
#include "src/seam/device.h"

namespace shardproof {

/// A communicator that copies what `inner` does not take through memory that it does, collective by
/// collective. `device` outlives it.
/// \param takes_device  whether `inner` takes the device's memory (NCCL) or the host's (Gloo).
std::shared_ptr<Communicator> StageThrough(std::shared_ptr<Communicator> inner, Device& device,
                                           bool takes_device);

}  // namespace shardproof
