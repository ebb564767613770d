// torch.ops.shardproof.digest: the digest core as a PyTorch operator, on the stable ABI, so that
// one build serves every torch from 2.10 on. For Python:
// verify/python/shardproof/_digests/_digest.py.
#include "src/digest/torch_op/op_runs.h"

namespace shardproof::digest_op {
namespace {

void CheckKernel() {
  const char* refused = sp_digest_kernel_refused();
  STD_TORCH_CHECK(*refused == '\0', "shardproof::digest: ", refused);
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
  CheckKernel();
  CheckBlocks(block_bytes, first_block, block_count);
  const auto format = FormatOf(float_format);
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

/// Many tensors in one call: what `digest` and `coverage` say of each.
/// \param data     n contiguous CPU tensors of any dtype.
/// \param runs     int64 [m, 6], as for `digest`: those of the first tensor, of the second, ...
/// \param tensors  int64 [n, 2]: of each tensor how many runs it has, and its float format.
/// \returns        int64 [n, 6]: the two lanes, NaN count, Inf count, the two lanes of the
/// coverage.
Tensor DigestsOp(const std::vector<Tensor> data, const Tensor runs, const Tensor tensors) {
  CheckKernel();
  Tensor out = torch::stable::new_zeros(runs, {static_cast<int64_t>(data.size()), kNumbersAResult});
  auto* rows = static_cast<uint64_t*>(out.mutable_data_ptr());
  for (const Tensor& tensor : data) {
    STD_TORCH_CHECK(tensor.is_cpu(), "shardproof::digests: data: expected tensors on the CPU");
  }
  ForEachRun(data, runs, tensors, [&](size_t row, const sp_run& run, sp_float_format format) {
    sp_summary summary{};
    sp_digest coverage{};
    sp_digest_runs(&summary, &run, 1, format);
    sp_coverage_runs(&coverage, &run, 1);
    const uint64_t more[] = {summary.digest.lane[0], summary.digest.lane[1], summary.nan_count,
                             summary.inf_count,      coverage.lane[0],       coverage.lane[1]};
    for (int64_t i = 0; i < kNumbersAResult; ++i) {
      rows[static_cast<int64_t>(row) * kNumbersAResult + i] += more[i];
    }
  });
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
}  // namespace shardproof::digest_op

using namespace shardproof::digest_op;

STABLE_TORCH_LIBRARY(shardproof, m) {
  m.def(
      "digest(Tensor data, Tensor runs, int float_format, int block_bytes, int first_block, "
      "int block_count) -> Tensor");
  m.def("digests(Tensor[] data, Tensor runs, Tensor tensors) -> Tensor");
  m.def("coverage(Tensor runs) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(shardproof, CPU, m) {
  m.impl("digest", TORCH_BOX(&DigestOp));
  m.impl("digests", TORCH_BOX(&DigestsOp));
  m.impl("coverage", TORCH_BOX(&CoverageOp));
}
