// The digest as a CUDA kernel: digest_thread.h with shared memory, shuffles and atomics. Compiled
// to machine code alone (nvcc -fatbin), which _digest_op.so carries and the driver loads.
#include "src/digest/digest_plan.h"

namespace shardproof::digest_internal {
namespace {

__device__ constexpr KeyTable kDeviceKeys = MakeKeyTable();

constexpr uint32_t kWarp = 32;
constexpr uint32_t kWarps = kThreads / kWarp;
constexpr uint32_t kAll = 0xffffffff;
constexpr uint32_t kRowSums = 6;

__device__ uint64_t SumOfWarp(uint64_t value) {
  for (uint32_t step = kWarp / 2; step > 0; step /= 2) {
    value += __shfl_down_sync(kAll, static_cast<unsigned long long>(value), step);
  }
  return value;
}

__device__ void Add(uint64_t* to, uint64_t value) {
  static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
  if (value != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
  }
}

struct Shared {
  ulonglong2 factors[kSharedFactors];
  uint64_t sums[kWarps][kRowSums];
};

/// Not passed on: through a pointer the compiler would not know that it is shared memory.
__device__ __forceinline__ Shared& TheShared() {
  __shared__ Shared shared;
  return shared;
}

class DeviceContext {
 public:
  __device__ explicit DeviceContext(const LaunchHead& head) : head_(head) {}

  __device__ uint32_t Thread() const { return threadIdx.x; }
  __device__ uint64_t BlockOfThreads() const { return blockIdx.x; }
  __device__ uint64_t BlocksOfThreads() const { return gridDim.x; }
  __device__ const uint32_t* Keys(uint32_t lane, uint32_t word) const {
    return static_cast<const uint32_t*>(__builtin_assume_aligned(&kDeviceKeys.key[lane][word], 16));
  }
  __device__ uint64_t Factor(uint32_t lane, uint32_t i) const {
    const Shared& shared = TheShared();
    return lane == 0 ? shared.factors[i].x : shared.factors[i].y;
  }

  template <typename BlockOf>
  __device__ __forceinline__ void ShareFactors(uint32_t count, const BlockOf& block_of) {
    __syncthreads();  // nobody still reads the last ones
    if (threadIdx.x < count) {
      uint64_t number = block_of(threadIdx.x);
      TheShared().factors[threadIdx.x] = {digest_internal::Factor(0, number),
                                          digest_internal::Factor(1, number)};
    }
    __syncthreads();
  }

  __device__ void AddToBlock(uint64_t index, const uint64_t* lanes) {
    uint64_t first = __shfl_sync(kAll, static_cast<unsigned long long>(index), 0);
    if (__all_sync(kAll, index == first)) {
      if (first == kNoBlock) return;
      uint64_t lane0 = SumOfWarp(lanes[0]), lane1 = SumOfWarp(lanes[1]);
      if (threadIdx.x % kWarp == 0) {
        Add(&head_.blocks[2 * first], lane0);
        Add(&head_.blocks[2 * first + 1], lane1);
      }
    } else if (index != kNoBlock) {
      Add(&head_.blocks[2 * index], lanes[0]);
      Add(&head_.blocks[2 * index + 1], lanes[1]);
    }
  }

  __device__ void Flush(uint32_t row, const ThreadSums& sums) {
    const uint64_t values[kRowSums] = {sums.lane[0],   sums.lane[1],     sums.nan_count,
                                       sums.inf_count, sums.coverage[0], sums.coverage[1]};
    __syncthreads();  // nobody still reads the last ones
#pragma unroll
    for (uint32_t i = 0; i < kRowSums; ++i) {
      uint64_t sum = SumOfWarp(values[i]);
      if (threadIdx.x % kWarp == 0) TheShared().sums[threadIdx.x / kWarp][i] = sum;
    }
    __syncthreads();
    if (threadIdx.x < kRowSums) {
      uint64_t sum = 0;
      for (uint32_t warp = 0; warp < kWarps; ++warp) sum += TheShared().sums[warp][threadIdx.x];
      const uint64_t at = uint64_t{row} * head_.row_words;
      if (threadIdx.x < 4) {
        Add(&head_.sums[at + threadIdx.x], sum);
      } else if (head_.coverage != nullptr) {
        Add(&head_.coverage[at + threadIdx.x - 4], sum);
      }
    }
  }

 private:
  const LaunchHead& head_;
};

template <uint32_t kSegments>
struct Segments {
  Segment segment[kSegments];
};

template <uint32_t kSegments>
__device__ __forceinline__ void Run(const LaunchHead& head, const Segments<kSegments>& segments) {
  DeviceContext context(head);
  RunThread(head, segments.segment, context);
}

}  // namespace
}  // namespace shardproof::digest_internal

namespace digest = shardproof::digest_internal;

// So many blocks of threads are to fit a multiprocessor: more of them hide more of the memory's
// latency, fewer have more registers each.
#ifndef DIGEST_BLOCKS_A_PROCESSOR
#define DIGEST_BLOCKS_A_PROCESSOR 4
#endif

extern "C" __global__ void __launch_bounds__(digest::kThreads, DIGEST_BLOCKS_A_PROCESSOR)
    shardproof_digest_few(const __grid_constant__ digest::LaunchHead head,
                          const __grid_constant__ digest::Segments<digest::kFewSegments> segments) {
  digest::Run(head, segments);
}

extern "C" __global__ void __launch_bounds__(digest::kThreads, DIGEST_BLOCKS_A_PROCESSOR)
    shardproof_digest_many(
        const __grid_constant__ digest::LaunchHead head,
        const __grid_constant__ digest::Segments<digest::kSegmentsMax> segments) {
  digest::Run(head, segments);
}
