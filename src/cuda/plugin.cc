#include "src/cuda/plugin.h"

extern "C" const shardproof::CudaPlugin* shardproof_cuda_plugin() {
  static const shardproof::CudaPlugin plugin = {
      .device_count = shardproof::CudaDeviceCount,
      .nccl_version = shardproof::NcclVersion,
      .make_device = shardproof::MakeCudaDevice,
      .connect_nccl = shardproof::ConnectNccl,
  };
  return &plugin;
}
