// Runs a launch of the digest's CUDA kernel on the host, one thread after another: for tests.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/digest/digest_plan.h"

namespace shardproof::digest_internal {

/// What all threads of a block do together must be the same calls in the same order: on a device
/// one that is left out is a deadlock or a wrong sum.
struct SharedCall {
  char kind;
  uint64_t a, b;
  friend bool operator==(const SharedCall&, const SharedCall&) = default;
};

class HostContext {
 public:
  HostContext(const LaunchHead& head, uint32_t thread, uint64_t block, uint64_t blocks)
      : head_(head), thread_(thread), block_(block), blocks_(blocks) {}

  uint32_t Thread() const { return thread_; }
  uint64_t BlockOfThreads() const { return block_; }
  uint64_t BlocksOfThreads() const { return blocks_; }
  const uint32_t* Keys(uint32_t lane, uint32_t word) const { return &kKeys.key[lane][word]; }
  uint64_t Factor(uint32_t lane, uint32_t i) const { return factors_[lane][i]; }

  template <typename BlockOf>
  void ShareFactors(uint32_t count, const BlockOf& block_of) {
    calls_.push_back({'s', block_of(0), count});
    for (uint32_t i = 0; i < kSharedFactors; ++i) {
      for (uint32_t lane = 0; lane < 2; ++lane) {  // 0: a factor that was not asked for shows
        factors_[lane][i] = i < count ? digest_internal::Factor(lane, block_of(i)) : 0;
      }
    }
  }
  void AddToBlock(uint64_t index, const uint64_t* lanes) {
    calls_.push_back({'a', 0, 0});
    if (index == kNoBlock) return;
    for (uint32_t lane = 0; lane < 2; ++lane) head_.blocks[2 * index + lane] += lanes[lane];
  }
  void Flush(uint32_t row, const ThreadSums& sums) {
    calls_.push_back({'f', row, 0});
    uint64_t* out = head_.sums + uint64_t{row} * head_.row_words;
    for (uint32_t lane = 0; lane < 2; ++lane) {
      out[lane] += sums.lane[lane];
      if (head_.coverage != nullptr) {
        head_.coverage[uint64_t{row} * head_.row_words + lane] += sums.coverage[lane];
      }
    }
    out[2] += sums.nan_count;
    out[3] += sums.inf_count;
  }
  const std::vector<SharedCall>& Calls() const { return calls_; }

 private:
  const LaunchHead& head_;
  uint32_t thread_;
  uint64_t block_, blocks_;
  uint64_t factors_[2][kSharedFactors] = {};
  std::vector<SharedCall> calls_;
};

/// \returns whether all threads of each block made the same shared calls.
inline bool RunOnHost(const LaunchHead& head, const Segment* segments, uint64_t blocks) {
  bool are_alike = true;
  for (uint64_t block = 0; block < blocks; ++block) {
    std::vector<SharedCall> first;
    for (uint32_t thread = 0; thread < kThreads; ++thread) {
      HostContext context(head, thread, block, blocks);
      RunThread(head, segments, context);
      if (thread == 0) first = context.Calls();
      are_alike = are_alike && context.Calls() == first;
    }
  }
  return are_alike;
}

}  // namespace shardproof::digest_internal
