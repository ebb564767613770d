// torch.ops.shardproof.digest: the digest core as a PyTorch operator, on the stable ABI, so that
// one build serves every torch from 2.10 on. For Python: verify/python/shardproof/_digest.py.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include <array>
#include <vector>

#include "src/digest/digest.h"

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

constexpr int64_t kNumbersARun = 6;
constexpr int64_t kBlockBytes = 4096;
constexpr int64_t kBlocksMax = int64_t{1} << 24;

int64_t Checked(bool overflow, int64_t value) {
  STD_TORCH_CHECK(!overflow, "shardproof::digest: a run's end overflows");
  return value;
}

int64_t End(int64_t start, int64_t stride, int64_t count, int64_t length) {
  int64_t end = 0;
  bool overflow = __builtin_mul_overflow(stride, count - 1, &end);
  overflow = __builtin_add_overflow(end, start, &end) || overflow;
  overflow = __builtin_add_overflow(end, length, &end) || overflow;
  return Checked(overflow, end);
}

/// The rows of `runs` as the core reads them; each must lie within the data.
std::vector<sp_run> RunsOf(const Tensor& runs, const char* data, int64_t data_bytes) {
  STD_TORCH_CHECK(runs.is_cpu() && runs.scalar_type() == ScalarType::Long && runs.dim() == 2 &&
                      runs.size(1) == kNumbersARun && runs.is_contiguous(),
                  "shardproof::digest: runs: expected a contiguous int64 CPU tensor [n, 6]");
  const auto* numbers = static_cast<const int64_t*>(runs.const_data_ptr());
  std::vector<sp_run> out;
  for (int64_t i = 0; i < runs.size(0); ++i, numbers += kNumbersARun) {
    const auto [start, length, count, stride, local_start, local_stride] =
        std::array<int64_t, kNumbersARun>{numbers[0], numbers[1], numbers[2],
                                          numbers[3], numbers[4], numbers[5]};
    STD_TORCH_CHECK(start >= 0 && length >= 0 && count >= 1 && stride >= 0 && local_start >= 0 &&
                        local_stride >= 0 && End(start, stride, count, length) >= 0 &&
                        End(local_start, local_stride, count, length) <= data_bytes,
                    "shardproof::digest: run ", i, " does not lie within the data's ", data_bytes,
                    " bytes");
    out.push_back({static_cast<uint64_t>(start), static_cast<uint64_t>(length),
                   static_cast<uint64_t>(count), static_cast<uint64_t>(stride), data + local_start,
                   local_stride});
  }
  return out;
}

/// \param data  uint8 [bytes], CPU, contiguous: the local memory.
/// \param runs  int64 [n, 6]: global start, length, count, global stride, local start and local
///              stride, all in bytes.
/// \returns     int64 [4 + 2 * block_count]: the two lanes, NaN count, Inf count, then the lanes of
///              each block of block_bytes from first_block on.
Tensor DigestOp(const Tensor data, const Tensor runs, int64_t float_format, int64_t block_bytes,
                int64_t first_block, int64_t block_count) {
  STD_TORCH_CHECK(data.is_cpu() && data.scalar_type() == ScalarType::Byte && data.dim() == 1 &&
                      data.is_contiguous(),
                  "shardproof::digest: data: expected a contiguous uint8 CPU tensor [n]");
  STD_TORCH_CHECK(float_format >= SP_NO_FLOAT && float_format <= SP_F8_E5M2,
                  "shardproof::digest: float_format ", float_format, " is unknown");
  STD_TORCH_CHECK(block_count >= 0 && block_count <= kBlocksMax && first_block >= 0 &&
                      (block_count == 0 || (block_bytes > 0 && block_bytes % kBlockBytes == 0)),
                  "shardproof::digest: blocks: expected a multiple of 4096 bytes and at most 2^24 "
                  "blocks");
  const auto format = static_cast<sp_float_format>(float_format);
  const auto read = RunsOf(runs, static_cast<const char*>(data.const_data_ptr()), data.numel());
  sp_summary summary{};
  std::vector<sp_digest> blocks(static_cast<size_t>(block_count));
  if (blocks.empty()) {
    sp_digest_runs(&summary, read.data(), read.size(), format);
  } else {
    sp_digest_blocks(&summary, blocks.data(), static_cast<uint64_t>(first_block), blocks.size(),
                     static_cast<uint64_t>(block_bytes), read.data(), read.size(), format);
  }
  Tensor out = torch::stable::new_zeros(runs, {4 + 2 * block_count});
  auto* numbers = static_cast<uint64_t*>(out.mutable_data_ptr());
  *numbers++ = summary.digest.lane[0];
  *numbers++ = summary.digest.lane[1];
  *numbers++ = summary.nan_count;
  *numbers++ = summary.inf_count;
  for (const sp_digest& block : blocks) {
    *numbers++ = block.lane[0];
    *numbers++ = block.lane[1];
  }
  return out;
}

/// \returns int64 [2]: the coverage of the runs, whose local numbers do not matter.
Tensor CoverageOp(const Tensor runs) {
  const auto read = RunsOf(runs, nullptr, INT64_MAX);
  sp_digest coverage{};
  sp_coverage_runs(&coverage, read.data(), read.size());
  Tensor out = torch::stable::new_zeros(runs, {2});
  auto* numbers = static_cast<uint64_t*>(out.mutable_data_ptr());
  numbers[0] = coverage.lane[0];
  numbers[1] = coverage.lane[1];
  return out;
}

}  // namespace

STABLE_TORCH_LIBRARY(shardproof, m) {
  m.def(
      "digest(Tensor data, Tensor runs, int float_format, int block_bytes, int first_block, "
      "int block_count) -> Tensor");
  m.def("coverage(Tensor runs) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(shardproof, CPU, m) {
  m.impl("digest", TORCH_BOX(&DigestOp));
  m.impl("coverage", TORCH_BOX(&CoverageOp));
}
