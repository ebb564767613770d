#include "src/comm/gloo.h"

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "src/aten/torch_try.h"

namespace shardproof {

Result<c10::intrusive_ptr<c10d::Backend>> ConnectGloo(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const Rendezvous& rendezvous) {
  return TorchTry(ErrorCode::kPeer, "connecting the ranks over Gloo", [&] {
    auto options = c10d::ProcessGroupGloo::Options::create(rendezvous.timeout);
    options->devices.push_back(
        rendezvous.interface.empty()
            ? c10d::ProcessGroupGloo::createDefaultDevice()
            : c10d::ProcessGroupGloo::createDeviceForInterface(rendezvous.interface));
    options->threads = 4;  // as many broadcasts under way as FillByBroadcast starts
    return c10::intrusive_ptr<c10d::Backend>(c10::make_intrusive<c10d::ProcessGroupGloo>(
        store, static_cast<int>(rendezvous.rank), static_cast<int>(rendezvous.world_size),
        options));
  });
}

Result<c10::intrusive_ptr<c10d::Store>> MakeFileStore(const std::string& path, int64_t world_size) {
  return TorchTry(ErrorCode::kFailed, "opening the store " + path, [&] {
    return c10::intrusive_ptr<c10d::Store>(
        c10::make_intrusive<c10d::FileStore>(path, static_cast<int>(world_size)));
  });
}

Result<c10::intrusive_ptr<c10d::Store>> MakeTcpStore(const std::string& host, uint16_t port,
                                                     bool serve,
                                                     std::chrono::milliseconds timeout) {
  return TorchTry(
      ErrorCode::kPeer, "reaching the store at " + host + ":" + std::to_string(port), [&] {
        c10d::TCPStoreOptions options;
        options.port = port;
        options.isServer = serve;
        options.waitWorkers = false;
        options.timeout = timeout;
        return c10::intrusive_ptr<c10d::Store>(c10::make_intrusive<c10d::TCPStore>(host, options));
      });
}

}  // namespace shardproof
