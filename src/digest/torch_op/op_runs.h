// What the implementations of torch.ops.shardproof.digest for CPUs and for GPUs share: their
// arguments, checked.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include <array>
#include <vector>

#include "src/digest/digest.h"

namespace shardproof::digest_op {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

inline constexpr int64_t kNumbersARun = 6;
inline constexpr int64_t kNumbersATensor = 2;
inline constexpr int64_t kNumbersAResult = 6;

inline int64_t End(int64_t start, int64_t stride, int64_t count, int64_t length) {
  int64_t end = 0;
  bool overflow = __builtin_mul_overflow(stride, count - 1, &end);
  overflow = __builtin_add_overflow(end, start, &end) || overflow;
  overflow = __builtin_add_overflow(end, length, &end) || overflow;
  STD_TORCH_CHECK(!overflow, "shardproof::digest: a run's end overflows");
  return end;
}

/// A row of `runs` as the core reads it; it must lie within the data.
inline sp_run RunOf(const int64_t* numbers, const char* data, int64_t data_bytes) {
  const auto [start, length, count, stride, local_start, local_stride] =
      std::array<int64_t, kNumbersARun>{numbers[0], numbers[1], numbers[2],
                                        numbers[3], numbers[4], numbers[5]};
  STD_TORCH_CHECK(start >= 0 && length >= 0 && count >= 1 && stride >= 0 && local_start >= 0 &&
                      local_stride >= 0 && End(start, stride, count, length) >= 0 &&
                      End(local_start, local_stride, count, length) <= data_bytes,
                  "shardproof::digest: the run of ", count, " times ", length, " bytes from ",
                  local_start, " on does not lie within the data's ", data_bytes, " bytes");
  return {static_cast<uint64_t>(start), static_cast<uint64_t>(length),
          static_cast<uint64_t>(count), static_cast<uint64_t>(stride),
          data + local_start,           local_stride};
}

inline const int64_t* Numbers(const Tensor& table, int64_t width, const char* what) {
  STD_TORCH_CHECK(table.is_cpu() && table.scalar_type() == ScalarType::Long && table.dim() == 2 &&
                      table.size(1) == width && table.is_contiguous(),
                  "shardproof::digest: ", what, ": expected a contiguous int64 CPU tensor [n, ",
                  width, "]");
  return static_cast<const int64_t*>(table.const_data_ptr());
}

inline std::vector<sp_run> RunsOf(const Tensor& runs, const char* data, int64_t data_bytes) {
  const int64_t* numbers = Numbers(runs, kNumbersARun, "runs");
  std::vector<sp_run> out;
  for (int64_t i = 0; i < runs.size(0); ++i, numbers += kNumbersARun) {
    out.push_back(RunOf(numbers, data, data_bytes));
  }
  return out;
}

inline sp_float_format FormatOf(int64_t float_format) {
  STD_TORCH_CHECK(float_format >= SP_NO_FLOAT && float_format <= SP_F8_E5M2,
                  "shardproof::digest: float_format ", float_format, " is unknown");
  return static_cast<sp_float_format>(float_format);
}

inline void CheckBlocks(int64_t block_bytes, int64_t first_block, int64_t block_count) {
  constexpr int64_t kBlockBytes = 4096, kBlocksMax = int64_t{1} << 24;
  STD_TORCH_CHECK(block_count >= 0 && block_count <= kBlocksMax && first_block >= 0 &&
                      (block_count == 0 || (block_bytes > 0 && block_bytes % kBlockBytes == 0)),
                  "shardproof::digest: blocks: expected a multiple of 4096 bytes and at most 2^24 "
                  "blocks");
}

/// Calls `add(row, run, format)` with all runs of all tensors. `tensors`: int64 [n, 2], of each of
/// `data` how many rows of `runs` are its, in order, and how its elements are read.
template <typename Add>
void ForEachRun(const std::vector<Tensor>& data, const Tensor& runs, const Tensor& tensors,
                const Add& add) {
  const int64_t* numbers = Numbers(runs, kNumbersARun, "runs");
  const int64_t* of_tensor = Numbers(tensors, kNumbersATensor, "tensors");
  STD_TORCH_CHECK(tensors.size(0) == static_cast<int64_t>(data.size()),
                  "shardproof::digests: tensors: expected ", data.size(), " rows");
  int64_t left = runs.size(0);
  for (size_t row = 0; row < data.size(); ++row, of_tensor += kNumbersATensor) {
    STD_TORCH_CHECK(data[row].is_contiguous(), "shardproof::digests: data ", row,
                    ": expected a contiguous tensor");
    STD_TORCH_CHECK(of_tensor[0] >= 0 && of_tensor[0] <= left,
                    "shardproof::digests: tensors: more runs than there are");
    left -= of_tensor[0];
    const auto* memory = static_cast<const char*>(data[row].const_data_ptr());
    const int64_t bytes = data[row].numel() * static_cast<int64_t>(data[row].element_size());
    const sp_float_format format = FormatOf(of_tensor[1]);
    for (int64_t i = 0; i < of_tensor[0]; ++i, numbers += kNumbersARun) {
      add(row, RunOf(numbers, memory, bytes), format);
    }
  }
  STD_TORCH_CHECK(left == 0, "shardproof::digests: ", left, " runs belong to no tensor");
}

}  // namespace shardproof::digest_op
