// Ranks as processes over Gloo, through c10d::Backend.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "src/comm/c10d_fwd.h"
#include "src/core/result.h"
#include "src/seam/clock.h"
#include "src/seam/communicator.h"

namespace shardproof {

/// Where ranks find each other.
struct Rendezvous {
  int64_t rank = 0;
  int64_t world_size = 1;
  std::chrono::milliseconds timeout{60000};  ///< of connecting and of each collective
  std::string interface;  ///< network interface, "lo" for one machine; empty: Gloo's default
};

/// A Communicator on any c10d backend. \param device  whose memory it takes.
std::shared_ptr<Communicator> MakeCommunicator(c10::intrusive_ptr<c10d::Backend> backend,
                                               std::shared_ptr<Clock> clock,
                                               at::Device device = at::kCPU);

/// Connects all ranks of `store`. Collective. \error kPeer if they do not all come in time.
Result<c10::intrusive_ptr<c10d::Backend>> ConnectGloo(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const Rendezvous& rendezvous);

/// A store in a file that all ranks see. \error kFailed.
Result<c10::intrusive_ptr<c10d::Store>> MakeFileStore(const std::string& path, int64_t world_size);

/// The store at MASTER_ADDR:MASTER_PORT; this rank serves it if `serve`. \error kPeer in `timeout`.
Result<c10::intrusive_ptr<c10d::Store>> MakeTcpStore(const std::string& host, uint16_t port,
                                                     bool serve, std::chrono::milliseconds timeout);

}  // namespace shardproof
