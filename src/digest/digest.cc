// The C ABI of the digest: chooses a kernel, splits runs at a grid, and sums coverage.
#include "src/digest/digest.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "src/digest/digest_internal.h"

namespace shardproof::digest_internal {
namespace {

constexpr uint32_t kOnes = 0x01010101;

/// sum[lane][w] is the sum of the keys of the words before w.
struct KeySums {
  uint64_t sum[2][kBlockWords + 1];
};

constexpr KeySums MakeKeySums() {
  KeySums sums{};
  for (uint32_t lane = 0; lane < 2; ++lane) {
    for (uint32_t word = 0; word < kBlockWords; ++word) {
      sums.sum[lane][word + 1] = sums.sum[lane][word] + kKeys.key[lane][word];
    }
  }
  return sums;
}

constexpr KeySums kKeySums = MakeKeySums();

/// The coverage of the bytes [0, end) of a block, before the block's factor.
uint64_t CoverageBefore(uint32_t lane, uint32_t end) {
  uint64_t sum = kKeySums.sum[lane][end / 4] * kOnes;
  if (end % 4 == 0) return sum;
  uint64_t partial_word = kOnes & ((1u << (8 * (end % 4))) - 1);
  return sum + partial_word * kKeys.key[lane][end / 4];
}

void CoverStretch(sp_digest& coverage, uint64_t start, uint64_t length) {
  while (length > 0) {
    uint64_t block = start / kBlockBytes;
    uint32_t begin = start % kBlockBytes;
    uint64_t step = length < kBlockBytes - begin ? length : kBlockBytes - begin;
    uint32_t end = begin + static_cast<uint32_t>(step);
    for (uint32_t lane = 0; lane < 2; ++lane) {
      coverage.lane[lane] +=
          (CoverageBefore(lane, end) - CoverageBefore(lane, begin)) * Factor(lane, block);
    }
    start += step;
    length -= step;
  }
}

struct KernelList {
  const Kernel* kernel[3];
  size_t count = 0;
};

constexpr const char* kVariable = "SHARDPROOF_DIGEST_KERNEL";
constexpr std::array<std::string_view, 3> kKnown = {"avx512", "avx2", "portable"};

/// The kernel that the environment asks for, so that all that runs can be tried with each; or "".
std::string_view Wanted() {
  const char* const wanted = std::getenv(kVariable);
  return wanted == nullptr ? "" : wanted;
}

bool IsUnwanted(const Kernel& kernel) { return !Wanted().empty() && Wanted() != kernel.name; }

/// Those that this machine runs, the fastest first; the portable one is always there.
KernelList FindKernels() {
  KernelList list;
#ifdef SHARDPROOF_DIGEST_X86
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      !IsUnwanted(kAvx512Kernel)) {
    list.kernel[list.count++] = &kAvx512Kernel;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt") &&
      !IsUnwanted(kAvx2Kernel)) {
    list.kernel[list.count++] = &kAvx2Kernel;
  }
#endif
  list.kernel[list.count++] = &kPortableKernel;
  return list;
}

/// Adds the digest of one stretch, cut at the borders of the grid's blocks. No element is cut by
/// that: the borders are multiples of 4096.
class GridStretch {
 public:
  GridStretch(const Kernel& kernel, sp_float_format format, uint64_t block_bytes)
      : digest_runs_(kernel.digest_runs[format]), block_bytes_(block_bytes) {}

  template <typename BlockOf>
  void Add(sp_run stretch, sp_summary& summary, const BlockOf& block_of) const {
    uint64_t rest = stretch.length;
    while (rest > 0) {
      uint64_t to_border = block_bytes_ - stretch.global_start % block_bytes_;
      stretch.length = rest < to_border ? rest : to_border;
      sp_summary part = {};
      digest_runs_(&part, &stretch, 1);
      AddSummary(part, summary, block_of(stretch.global_start / block_bytes_));
      stretch.global_start += stretch.length;
      stretch.data = static_cast<const uint8_t*>(stretch.data) + stretch.length;
      rest -= stretch.length;
    }
  }

 private:
  static void AddSummary(const sp_summary& part, sp_summary& summary, sp_digest* block) {
    for (int lane = 0; lane < 2; ++lane) {
      summary.digest.lane[lane] += part.digest.lane[lane];
      if (block != nullptr) block->lane[lane] += part.digest.lane[lane];
    }
    summary.nan_count += part.nan_count;
    summary.inf_count += part.inf_count;
  }

  void (*digest_runs_)(sp_summary*, const sp_run*, size_t);
  uint64_t block_bytes_;
};

}  // namespace

std::span<const Kernel* const> Kernels() {
  static const KernelList list = FindKernels();
  return {list.kernel, list.count};
}

void DigestBlocks(const Kernel& kernel, sp_summary* summary, sp_digest* blocks,
                  uint64_t first_block, size_t block_count, uint64_t block_bytes,
                  const sp_run* runs, size_t run_count, sp_float_format format) {
  GridStretch grid(kernel, format, block_bytes);
  auto block_of = [=](uint64_t block) {
    uint64_t index = block - first_block;  // Wraps, and so is too large, before the first.
    return index < block_count ? &blocks[index] : nullptr;
  };
  for (size_t r = 0; r < run_count; ++r) {
    if (runs[r].length == 0) continue;
    const uint8_t* data = static_cast<const uint8_t*>(runs[r].data);
    for (uint64_t i = 0; i < runs[r].count; ++i) {
      sp_run stretch = {runs[r].global_start + i * runs[r].global_stride,
                        runs[r].length,
                        1,
                        0,
                        data + static_cast<int64_t>(i) * runs[r].data_stride,
                        0};
      grid.Add(stretch, *summary, block_of);
    }
  }
}

}  // namespace shardproof::digest_internal

using shardproof::digest_internal::CoverStretch;
using shardproof::digest_internal::DigestBlocks;
using shardproof::digest_internal::Kernel;
using shardproof::digest_internal::Kernels;
using shardproof::digest_internal::kKnown;
using shardproof::digest_internal::kVariable;
using shardproof::digest_internal::Wanted;

void sp_digest_runs(sp_summary* summary, const sp_run* runs, size_t run_count,
                    sp_float_format format) {
  Kernels().front()->digest_runs[format](summary, runs, run_count);
}

void sp_count_non_finite(sp_summary* summary, const void* data, uint64_t length,
                         sp_float_format format) {
  Kernels().front()->count_non_finite[format](summary, static_cast<const uint8_t*>(data), length);
}

void sp_coverage_runs(sp_digest* coverage, const sp_run* runs, size_t run_count) {
  for (size_t r = 0; r < run_count; ++r) {
    if (runs[r].length == 0) continue;
    for (uint64_t i = 0; i < runs[r].count; ++i) {
      CoverStretch(*coverage, runs[r].global_start + i * runs[r].global_stride, runs[r].length);
    }
  }
}

void sp_digest_blocks(sp_summary* summary, sp_digest* blocks, uint64_t first_block,
                      size_t block_count, uint64_t block_bytes, const sp_run* runs,
                      size_t run_count, sp_float_format format) {
  DigestBlocks(*Kernels().front(), summary, blocks, first_block, block_count, block_bytes, runs,
               run_count, format);
}

const char* sp_digest_kernel(void) { return Kernels().front()->name; }

const char* sp_digest_kernel_refused(void) {
  static const std::array<char, 160> line = [] {
    std::array<char, 160> text = {};
    const std::string_view wanted = Wanted();
    if (!wanted.empty() && std::find(kKnown.begin(), kKnown.end(), wanted) == kKnown.end()) {
      std::snprintf(text.data(), text.size(), "%s is '%.60s': expected avx512, avx2 or portable",
                    kVariable, wanted.data());
    }
    return text;
  }();
  return line.data();
}
