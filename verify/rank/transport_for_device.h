// Where a rank's tensors are, and how they reach other ranks: by the name that a Case gives it.
#pragma once

#include <memory>
#include <string>

#include "src/comm/gloo.h"
#include "src/seam/device.h"

namespace shardproof {

struct Reach {
  std::shared_ptr<Device> device;
  std::shared_ptr<Communicator> communicator;
};

/// Connects all ranks of `store`. Collective.
/// \param device  "cpu": Gloo. "apart": Gloo, staged. "cuda": NCCL, or Gloo, staged, where more
/// ranks
///   share a GPU than its NCCL allows.
/// \error kPeer if they do not all come in time; kFailed if there is no such device.
Result<Reach> Connect(const std::string& device, const c10::intrusive_ptr<c10d::Store>& store,
                      const Rendezvous& rendezvous, std::shared_ptr<Clock> clock);

/// The same over Gloo that is connected already: "cpu" or "apart".
/// \param store  of this reach alone, by which lost ranks are named (src/comm/roll_call.h)
Reach ReachOver(const std::string& device, c10::intrusive_ptr<c10d::Backend> backend,
                c10::intrusive_ptr<c10d::Store> store, const Rendezvous& rendezvous,
                std::shared_ptr<Clock> clock);

/// Why no rank can have such a device on this machine, or empty. Touches no driver, so that
/// processes can be forked afterwards.
std::string WhyNoDevice(const std::string& device);

}  // namespace shardproof
