#include "verify/rank/transport_for_device.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "src/comm/roll_call.h"
#include "src/comm/staging.h"
#include "src/cuda/plugin.h"
#include "verify/decorators/isolated_device.h"

namespace shardproof {
namespace {

/// As of which NCCL several ranks may share a GPU.
constexpr int64_t kNcclSharesGpus = 23000;

constexpr const char* kLibrary = "libshardproof_cuda.so";

/// Beside the command, as both the build and the installed package have it.
std::string LibraryPath() {
  std::array<char, 4096> path{};
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size() - 1);
  if (length <= 0) return kLibrary;
  return (std::filesystem::path(std::string(path.data(), length)).parent_path() / kLibrary)
      .string();
}

Result<const CudaPlugin*> LoadPlugin() {
  const std::string path = LibraryPath();
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr)
    return Failed(fmt::format(
        "device cuda: {}; the build target shardproof_cuda makes this library", ::dlerror()));
  const auto get = reinterpret_cast<CudaPluginGetter>(::dlsym(library, kCudaPluginSymbol));
  if (get == nullptr)
    return Failed(fmt::format("device cuda: {} is not the expected library", path));
  return get();
}

/// What a rank waits for the others' words, after all that it has waited for a collective.
std::shared_ptr<Communicator> WithRoll(std::shared_ptr<Communicator> communicator,
                                       c10::intrusive_ptr<c10d::Store> store,
                                       const Rendezvous& rendezvous, std::shared_ptr<Clock> clock) {
  return CallRoll(std::move(communicator), std::move(store), rendezvous.timeout / 4,
                  std::move(clock));
}

Result<std::shared_ptr<Communicator>> OverGloo(const c10::intrusive_ptr<c10d::Store>& store,
                                               const Rendezvous& rendezvous,
                                               std::shared_ptr<Clock> clock) {
  SP_ASSIGN(auto backend, ConnectGloo(store, rendezvous));
  return WithRoll(MakeCommunicator(std::move(backend), clock), store, rendezvous, clock);
}

Result<Reach> ConnectCuda(const c10::intrusive_ptr<c10d::Store>& store,
                          const Rendezvous& rendezvous, std::shared_ptr<Clock> clock) {
  SP_ASSIGN(const CudaPlugin* cuda, LoadPlugin());
  const int count = cuda->device_count();
  if (count == 0) return Failed("device cuda: the driver found no GPU");
  const int index = static_cast<int>(rendezvous.rank % count);
  Reach reach;
  SP_ASSIGN(reach.device, cuda->make_device(index));
  const bool shared = rendezvous.world_size > count;
  if (shared && cuda->nccl_version() < kNcclSharesGpus) {
    SP_ASSIGN(reach.communicator, OverGloo(store, rendezvous, std::move(clock)));
    reach.communicator = StageThrough(reach.communicator, *reach.device, false);
    return reach;
  }
  SP_ASSIGN(auto backend, cuda->connect_nccl(store, rendezvous, index));
  const at::Device gpu(at::kCUDA, static_cast<c10::DeviceIndex>(index));
  reach.communicator = StageThrough(
      WithRoll(MakeCommunicator(std::move(backend), clock, gpu), store, rendezvous, clock),
      *reach.device, true);
  return reach;
}

}  // namespace

Result<Reach> Connect(const std::string& device, const c10::intrusive_ptr<c10d::Store>& store,
                      const Rendezvous& rendezvous, std::shared_ptr<Clock> clock) {
  if (device == "cuda") return ConnectCuda(store, rendezvous, std::move(clock));
  SP_ASSIGN(auto backend, ConnectGloo(store, rendezvous));
  return ReachOver(device, std::move(backend), store, rendezvous, std::move(clock));
}

Reach ReachOver(const std::string& device, c10::intrusive_ptr<c10d::Backend> backend,
                c10::intrusive_ptr<c10d::Store> store, const Rendezvous& rendezvous,
                std::shared_ptr<Clock> clock) {
  Reach reach{MakeHostDevice(), WithRoll(MakeCommunicator(std::move(backend), clock),
                                         std::move(store), rendezvous, clock)};
  if (device == "cpu") return reach;
  reach.device = MakeApartDevice();
  reach.communicator = StageThrough(reach.communicator, *reach.device, false);
  return reach;
}

std::string WhyNoDevice(const std::string& device) {
  if (device != "cuda") return "";
  std::error_code error;
  if (!std::filesystem::exists(LibraryPath(), error)) {
    return "this build has no CUDA: the torch that it was built against has none, or lacks headers";
  }
  for (int index = 0; index < 64; ++index) {
    if (std::filesystem::exists(fmt::format("/dev/nvidia{}", index), error)) return "";
  }
  return "no CUDA device found (/dev/nvidia*)";
}

}  // namespace shardproof
