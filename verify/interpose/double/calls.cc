#include "verify/interpose/double/calls.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <string.h>

#include "verify/interpose/double/memory.h"

namespace {

constexpr size_t kBytes = 64;
constexpr size_t kFloats = kBytes / sizeof(float);

/// Memory of the device, filled without a call that could be struck.
char* Buffer(float first) {
  void* buffer = nullptr;
  cudaMallocAsync(&buffer, kBytes, nullptr);
  float* floats = static_cast<float*>(doubleHostAddress(buffer));
  for (size_t i = 0; i < kFloats; ++i) floats[i] = first + static_cast<float>(i);
  return static_cast<char*>(buffer);
}

ncclComm_t Alone() {
  ncclComm_t comm = nullptr;
  ncclCommInitAll(&comm, 1, nullptr);
  return comm;
}

std::string Hex(const void* pointer) {
  const unsigned char* bytes = static_cast<unsigned char*>(doubleHostAddress(pointer));
  std::string out;
  for (size_t i = 0; i < 8; ++i) {
    char digits[3];
    ::snprintf(digits, sizeof digits, "%02x", bytes[i]);
    out += digits;
  }
  return out;
}

template <typename Make>
Outcome Gives(Make make) {
  void* given[64] = {};
  return {static_cast<int>(make(given)), ""};
}

/// \param fill  gets what is sent, where the result goes, and a communicator
template <typename Fill>
Outcome Fills(Fill fill) {
  const char* send = Buffer(1);
  char* recv = Buffer(100);
  const int code = static_cast<int>(fill(send, recv, Alone()));
  return {code, Hex(recv)};
}

ncclResult_t ReceiveOwn(const char* send, char* recv, ncclComm_t comm) {
  ncclSend(send, kFloats, ncclFloat32, 0, comm, nullptr);
  return ncclRecv(recv, kFloats, ncclFloat32, 0, comm, nullptr);
}

CUresult CreateByEntryPoint(void** given) {
  void* function = nullptr;
  cudaGetDriverEntryPointByVersion("cuMemCreate", &function, 12000, 0, nullptr);
  const CUmemAllocationProp properties{};
  return reinterpret_cast<decltype(&cuMemCreate)>(function)(
      reinterpret_cast<CUmemGenericAllocationHandle*>(given), kBytes, &properties, 0);
}

ncclResult_t InitRank(void** given, int which) {
  ncclUniqueId id{};
  id.internal[20] = static_cast<char>(which);
  id.internal[0] = static_cast<char>(200 + which);
  ncclComm_t* comm = reinterpret_cast<ncclComm_t*>(given);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (which == 0) return ncclCommInitRank(comm, 1, id, 0);
  if (which == 1) return ncclCommInitRankConfig(comm, 1, id, 0, &config);
  return ncclCommInitRankScalable(comm, 1, 0, 1, &id, &config);
}

ncclResult_t EndGroup() {
  ncclGroupStart();
  return ncclGroupEnd();
}

}  // namespace

#define GIVES(name, call) {#name, [] { return Gives([](void** given) { return call; }); }},
#define ON_COMM(name, call)          \
  {#name, [] {                       \
     return Gives([](void** given) { \
       ncclComm_t comm = Alone();    \
       (void)given;                  \
       return call;                  \
     });                             \
   }},
#define FILLS(name, call)                                             \
  {#name, [] {                                                        \
     return Fills([](const char* send, char* recv, ncclComm_t comm) { \
       (void)send;                                                    \
       (void)recv;                                                    \
       (void)comm;                                                    \
       return call;                                                   \
     });                                                              \
   }},

const std::map<std::string, std::function<Outcome()>>& Calls() {
  // clang-format off
  static const std::map<std::string, std::function<Outcome()>> calls = {
      GIVES(cudaMalloc, cudaMalloc(given, kBytes))
      GIVES(cudaMallocAsync, cudaMallocAsync(given, kBytes, nullptr))
      GIVES(cudaMallocManaged, cudaMallocManaged(given, kBytes, cudaMemAttachGlobal))
      GIVES(cudaMallocHost, cudaMallocHost(given, kBytes))
      GIVES(cudaHostAlloc, cudaHostAlloc(given, kBytes, 0))
      GIVES(cudaHostRegister, cudaHostRegister(given, kBytes, 0))
      GIVES(cuMemCreate, CreateByEntryPoint(given))
      FILLS(cudaMemcpy, cudaMemcpy(recv, send, kBytes, cudaMemcpyDeviceToDevice))
      FILLS(cudaMemcpyAsync, cudaMemcpyAsync(recv, send, kBytes, cudaMemcpyDeviceToDevice, nullptr))
      FILLS(cudaMemcpyPeerAsync, cudaMemcpyPeerAsync(recv, 0, send, 0, kBytes, nullptr))
      GIVES(cudaStreamSynchronize, ((void)given, cudaStreamSynchronize(nullptr)))
      GIVES(cudaEventSynchronize, ((void)given, cudaEventSynchronize(nullptr)))
      GIVES(cudaDeviceSynchronize, ((void)given, cudaDeviceSynchronize()))
      GIVES(ncclGetUniqueId, ncclGetUniqueId(reinterpret_cast<ncclUniqueId*>(given)))
      GIVES(ncclCommInitRank, InitRank(given, 0))
      GIVES(ncclCommInitRankConfig, InitRank(given, 1))
      GIVES(ncclCommInitRankScalable, InitRank(given, 2))
      GIVES(ncclCommInitAll, ncclCommInitAll(reinterpret_cast<ncclComm_t*>(given), 1, nullptr))
      ON_COMM(ncclCommSplit, ncclCommSplit(comm, 0, 0, reinterpret_cast<ncclComm_t*>(given), nullptr))
      ON_COMM(ncclCommRegister, ncclCommRegister(comm, given, kBytes, given))
      ON_COMM(ncclCommFinalize, ncclCommFinalize(comm))
      ON_COMM(ncclCommDestroy, ncclCommDestroy(comm))
      ON_COMM(ncclCommAbort, ncclCommAbort(comm))
      ON_COMM(ncclCommGetAsyncError, ncclCommGetAsyncError(comm, reinterpret_cast<ncclResult_t*>(given)))
      GIVES(ncclGroupStart, ((void)given, ncclGroupStart()))
      GIVES(ncclGroupEnd, ((void)given, EndGroup()))
      FILLS(ncclAllReduce, ncclAllReduce(send, recv, kFloats, ncclFloat32, ncclSum, comm, nullptr))
      FILLS(ncclBroadcast, ncclBroadcast(send, recv, kFloats, ncclFloat32, 0, comm, nullptr))
      FILLS(ncclBcast, ncclBcast(recv, kFloats, ncclFloat32, 0, comm, nullptr))
      FILLS(ncclReduce, ncclReduce(send, recv, kFloats, ncclFloat32, ncclSum, 0, comm, nullptr))
      FILLS(ncclAllGather, ncclAllGather(send, recv, kFloats, ncclFloat32, comm, nullptr))
      FILLS(ncclReduceScatter, ncclReduceScatter(send, recv, kFloats, ncclFloat32, ncclSum, comm, nullptr))
      ON_COMM(ncclSend, ncclSend(Buffer(1), kFloats, ncclFloat32, 0, comm, nullptr))
      FILLS(ncclRecv, ReceiveOwn(send, recv, comm))
#if NCCL_VERSION_CODE >= 22800
      FILLS(ncclAlltoAll, ncclAlltoAll(send, recv, kFloats, ncclFloat32, comm, nullptr))
      FILLS(ncclGather, ncclGather(send, recv, kFloats, ncclFloat32, 0, comm, nullptr))
      FILLS(ncclScatter, ncclScatter(send, recv, kFloats, ncclFloat32, 0, comm, nullptr))
#endif
  };
  // clang-format on
  return calls;
}
