// What needs CUDA, in a library of its own: loading the wheel's CUDA libraries takes seconds that a
// run on the host should not spend, and a wheel without CUDA has none.
#pragma once

#include <cstdint>
#include <memory>

#include "src/comm/gloo.h"
#include "src/seam/device.h"

namespace shardproof {

struct CudaPlugin {
  /// GPUs that the driver has; 0 if there is no driver. Initialises it: not before a fork.
  int (*device_count)();
  /// NCCL's version as major * 10000 + minor * 100 + patch.
  int64_t (*nccl_version)();
  /// Memory of one GPU, through LibTorch's caching allocator. Copies to and from pageable host
  /// memory go through pinned buffers. \error kFailed.
  Result<std::shared_ptr<Device>> (*make_device)(int index);
  /// Connects all ranks of `store`. Collective. \error kPeer if they do not all come in time.
  Result<c10::intrusive_ptr<c10d::Backend>> (*connect_nccl)(
      const c10::intrusive_ptr<c10d::Store>& store, const Rendezvous& rendezvous, int index);
};

/// The only symbol that is looked up.
inline constexpr const char* kCudaPluginSymbol = "shardproof_cuda_plugin";
using CudaPluginGetter = const CudaPlugin* (*)();

/// For plugin.cc; the rest of the library.
int CudaDeviceCount();
Result<std::shared_ptr<Device>> MakeCudaDevice(int index);
int64_t NcclVersion();
Result<c10::intrusive_ptr<c10d::Backend>> ConnectNccl(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const Rendezvous& rendezvous, int index);

}  // namespace shardproof
