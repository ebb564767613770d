#include "verify/interpose/preload/flip.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <time.h>

#include <utility>
#include <vector>

#include "verify/interpose/preload/log.h"
#include "verify/interpose/preload/real.h"

namespace shardproof::interpose {
namespace {

constexpr int kEnqueueSecondsMax = 60;

struct Pending {
  const Rule* rule;
  Facts facts;
};
// What is given to NCCL within a group begins when the outermost one ends.
thread_local int group_depth = 0;
thread_local std::vector<Pending> pending;

/// Until the communicator has handed its work to the stream, which one that does not block does by
/// a thread of its own.
void AwaitEnqueued(void* comm) {
  auto* ask = reinterpret_cast<ncclResult_t (*)(ncclComm_t, ncclResult_t*)>(
      RealOf(Function::ncclCommGetAsyncError));
  if (comm == nullptr || ask == nullptr) return;
  for (int tenths_ms = 0; tenths_ms < kEnqueueSecondsMax * 10'000; ++tenths_ms) {
    ncclResult_t state = ncclSuccess;
    if (ask(static_cast<ncclComm_t>(comm), &state) != ncclSuccess || state != ncclInProgress)
      return;
    const timespec tenth{.tv_sec = 0, .tv_nsec = 100'000};
    ::nanosleep(&tenth, nullptr);
  }
}

struct Runtime {
  cudaError_t (*copy)(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t);
  cudaError_t (*wait)(cudaStream_t);
  cudaError_t (*look)(cudaPointerAttributes*, const void*);
};

/// \returns the step that failed, or null
const char* FlipBit(const Runtime& runtime, unsigned char* byte, unsigned char mask,
                    cudaStream_t stream, cudaError_t& error) {
  cudaPointerAttributes attributes{};
  error = runtime.look(&attributes, byte);
  if (error != cudaSuccess) return "cudaPointerGetAttributes";
  error = runtime.wait(stream);
  if (error != cudaSuccess) return "cudaStreamSynchronize";
  if (attributes.type != cudaMemoryTypeDevice) {
    *byte ^= mask;
    return nullptr;
  }
  unsigned char value = 0;
  error = runtime.copy(&value, byte, 1, cudaMemcpyDeviceToHost, stream);
  if (error == cudaSuccess) error = runtime.wait(stream);
  value ^= mask;
  if (error == cudaSuccess) error = runtime.copy(byte, &value, 1, cudaMemcpyHostToDevice, stream);
  if (error == cudaSuccess) error = runtime.wait(stream);
  return error == cudaSuccess ? nullptr : "a copy of the byte";
}

template <typename Function>
void Take(Function*& place, void* real) {
  place = reinterpret_cast<Function*>(real);
}

}  // namespace

void Flip(const Rule& rule, const Facts& facts) {
  Runtime runtime{};
  Take(runtime.copy, RealOf(Function::cudaMemcpyAsync));
  Take(runtime.wait, RealOf(Function::cudaStreamSynchronize));
  Take(runtime.look, Find(Family::kCuda, "cudaPointerGetAttributes"));
  if (runtime.copy == nullptr || runtime.wait == nullptr || runtime.look == nullptr) {
    return LogUndone(rule, "the program has loaded no libcudart.so to flip the bit by");
  }
  AwaitEnqueued(facts.comm);
  const uint64_t bit = static_cast<uint64_t>(rule.value);
  cudaError_t error = cudaSuccess;
  const char* failed = FlipBit(runtime, static_cast<unsigned char*>(facts.filled) + bit / 8,
                               static_cast<unsigned char>(1u << bit % 8),
                               static_cast<cudaStream_t>(facts.stream), error);
  if (failed == nullptr) return;
  char why[128];
  ::snprintf(why, sizeof why, "%s returned %d", failed, static_cast<int>(error));
  LogUndone(rule, why);
}

bool InGroup() { return group_depth > 0; }

void FlipAfterGroup(const Rule& rule, const Facts& facts) { pending.push_back({&rule, facts}); }

void GroupBegun() { ++group_depth; }

void GroupEnded() {
  if (group_depth > 0) --group_depth;
  if (group_depth > 0) return;
  for (const Pending& flip : std::exchange(pending, {})) Flip(*flip.rule, flip.facts);
}

}  // namespace shardproof::interpose
