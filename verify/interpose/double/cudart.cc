// A double of libcudart, for tests without a GPU: memory of the device is the host's behind
// addresses that nobody else can use, and every stream has done its work when the call returns.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <mutex>

#include "verify/interpose/double/memory.h"

namespace {

struct Block {
  size_t bytes;
  char* behind;
};
std::mutex mutex;
std::map<const char*, Block>& Blocks() {
  static auto* blocks = new std::map<const char*, Block>;
  return *blocks;
}

/// Where the block is, and null for the host's memory.
const Block* BlockOf(const char* pointer, const char** begin) {
  auto it = Blocks().upper_bound(pointer);
  if (it == Blocks().begin()) return nullptr;
  --it;
  *begin = it->first;
  return pointer < it->first + it->second.bytes ? &it->second : nullptr;
}

cudaError_t Allocate(void** pointer, size_t bytes) {
  if (pointer == nullptr || bytes == 0) return cudaErrorInvalidValue;
  const auto map = [bytes](int protection) {
    return ::mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  };
  void* front = map(PROT_NONE);
  void* behind = map(PROT_READ | PROT_WRITE);
  if (front == MAP_FAILED || behind == MAP_FAILED) return cudaErrorMemoryAllocation;
  const std::lock_guard lock(mutex);
  Blocks()[static_cast<char*>(front)] = {bytes, static_cast<char*>(behind)};
  *pointer = front;
  return cudaSuccess;
}

cudaError_t AllocateHost(void** pointer, size_t bytes) {
  if (pointer == nullptr || bytes == 0) return cudaErrorInvalidValue;
  *pointer = ::calloc(1, bytes);
  return *pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t Copy(void* to, const void* from, size_t bytes) {
  ::memmove(doubleHostAddress(to), doubleHostAddress(from), bytes);
  return cudaSuccess;
}

CUresult CreateMemory(CUmemGenericAllocationHandle* handle, size_t, const CUmemAllocationProp*,
                      unsigned long long) {
  *handle = 1;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

void* doubleHostAddress(const void* pointer) {
  const std::lock_guard lock(mutex);
  const char* begin = nullptr;
  const Block* block = BlockOf(static_cast<const char*>(pointer), &begin);
  if (block == nullptr) return const_cast<void*>(pointer);
  return block->behind + (static_cast<const char*>(pointer) - begin);
}

cudaError_t cudaMalloc(void** pointer, size_t bytes) { return Allocate(pointer, bytes); }
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t) {
  return Allocate(pointer, bytes);
}
cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned int) {
  return AllocateHost(pointer, bytes);
}
cudaError_t cudaMallocHost(void** pointer, size_t bytes) { return AllocateHost(pointer, bytes); }
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned int) {
  return AllocateHost(pointer, bytes);
}
cudaError_t cudaHostRegister(void* pointer, size_t, unsigned int) {
  return pointer == nullptr ? cudaErrorInvalidValue : cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  return Copy(to, from, bytes);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  return Copy(to, from, bytes);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t) {
  return Copy(to, from, bytes);
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  *attributes = {};
  attributes->type =
      doubleHostAddress(pointer) == pointer ? cudaMemoryTypeUnregistered : cudaMemoryTypeDevice;
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned int,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  const bool is_there = ::strcmp(symbol, "cuMemCreate") == 0;
  *function = is_there ? reinterpret_cast<void*>(&CreateMemory) : nullptr;
  if (status != nullptr) {
    *status = is_there ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  }
  return is_there ? cudaSuccess : cudaErrorSymbolNotFound;
}

}  // extern "C"
