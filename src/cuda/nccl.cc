// Ranks on GPUs over NCCL.
#include <c10/cuda/CUDAFunctions.h>
#include <stdlib.h>
#include <torch/csrc/cuda/nccl.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "src/aten/torch_try.h"
#include "src/cuda/plugin.h"

namespace shardproof {

int64_t NcclVersion() {
  const uint64_t version = torch::cuda::nccl::version();  // 16 bits each
  return static_cast<int64_t>(((version >> 32) & 0xffff) * 10000 +
                              ((version >> 16) & 0xffff) * 100 + (version & 0xffff));
}

Result<c10::intrusive_ptr<c10d::Backend>> ConnectNccl(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const Rendezvous& rendezvous, int index) {
  return TorchTry(ErrorCode::kPeer, "connecting the ranks over NCCL", [&] {
    // Waiting is to wait, and to say when it was too long, as with Gloo.
    ::setenv("TORCH_NCCL_BLOCKING_WAIT", "1", 1);
    ::setenv("TORCH_NCCL_ENABLE_MONITORING", "0", 1);
    // More ranks than GPUs; an NCCL that does not know it takes no notice.
    ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(index));
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = rendezvous.timeout;
    return c10::intrusive_ptr<c10d::Backend>(c10::make_intrusive<c10d::ProcessGroupNCCL>(
        store, static_cast<int>(rendezvous.rank), static_cast<int>(rendezvous.world_size),
        options));
  });
}

}  // namespace shardproof
