// torch.ops.shardproof.digest and digests for tensors on a GPU: by the kernel of digest_kernel.cu,
// on the caller's current stream. Results stay on the device: who asks for them waits for them.
#include <dlfcn.h>

#include <string>

#include "src/digest/digest_plan.h"
#include "src/digest/torch_op/cuda_driver.h"
#include "src/digest/torch_op/op_runs.h"

namespace shardproof::digest_op {
namespace {

using digest_internal::LaunchDigest;
using digest_internal::LaunchHead;
using digest_internal::Planner;
using digest_internal::Segment;

/// The stream that torch's next operation on the device would run on. The function is part of the
/// stable ABI, but in torch's CUDA library, which the op must not need where there is none.
void* CurrentStream(int device) {
  using GetStream = AOTITorchError (*)(int32_t, void**);
  static const auto get_stream = [] {
    void* library = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
    return library == nullptr
               ? nullptr
               : reinterpret_cast<GetStream>(dlsym(library, "aoti_torch_get_current_cuda_stream"));
  }();
  STD_TORCH_CHECK(get_stream != nullptr,
                  "shardproof::digest: this torch has no aoti_torch_get_current_cuda_stream");
  void* stream = nullptr;
  STD_TORCH_CHECK(get_stream(device, &stream) == 0,
                  "shardproof::digest: the current stream of cuda:", device, " is not known");
  return stream;
}

void AddTo(Planner& planner, const sp_run& run, size_t row, sp_float_format format) {
  STD_TORCH_CHECK(planner.Add(run, static_cast<uint32_t>(row), format),
                  "shardproof::digest: a run of ", run.count, " times ", run.length,
                  " bytes is too much for a GPU");
}

void Launch(Planner& planner, LaunchHead head, int device) {
  void* stream = CurrentStream(device);
  planner.ForEach([&](std::span<const Segment> segments, uint64_t unit_count) {
    head.unit_count = unit_count;
    std::string wrong = LaunchDigest(device, stream, head, segments);
    STD_TORCH_CHECK(wrong.empty(), "shardproof::digest: cuda:", device, ": ", wrong);
  });
}

/// int64 zeros on the device of `like`. What torch's allocator says does not come through the
/// stable ABI, so this says it.
Tensor Results(const Tensor& like, std::vector<int64_t> size) {
  std::string said;
  try {
    return torch::stable::new_zeros(like, size, ScalarType::Long);
  } catch (const std::exception& error) {
    said = error.what();
  }
  STD_TORCH_CHECK(false, "shardproof::digest: cuda:", like.get_device_index(),
                  ": cannot allocate its results (", said, ")");
}

/// As DigestOp for CPUs. \returns int64 [4 + 2 * block_count] on the device of the data.
Tensor DigestOnGpu(const Tensor data, const Tensor runs, int64_t float_format, int64_t block_bytes,
                   int64_t first_block, int64_t block_count) {
  STD_TORCH_CHECK(data.is_cuda() && data.scalar_type() == ScalarType::Byte && data.dim() == 1 &&
                      data.is_contiguous(),
                  "shardproof::digest: data: expected a contiguous uint8 CUDA tensor [n]");
  CheckBlocks(block_bytes, first_block, block_count);
  Planner planner;
  for (const sp_run& run :
       RunsOf(runs, static_cast<const char*>(data.const_data_ptr()), data.numel())) {
    AddTo(planner, run, 0, FormatOf(float_format));
  }
  Tensor out = Results(data, {4 + 2 * block_count});
  LaunchHead head = {};
  head.sums = static_cast<uint64_t*>(out.mutable_data_ptr());
  head.row_words = 4;
  head.blocks = head.sums + 4;
  head.first_block = static_cast<uint64_t>(first_block);
  head.block_count = static_cast<uint64_t>(block_count);
  head.block_bytes = static_cast<uint64_t>(block_bytes);
  Launch(planner, head, data.get_device_index());
  return out;
}

/// As DigestsOp for CPUs. \returns int64 [n, 6] on the device of the data, which must be one.
Tensor DigestsOnGpu(const std::vector<Tensor> data, const Tensor runs, const Tensor tensors) {
  STD_TORCH_CHECK(!data.empty(), "shardproof::digests: data: expected at least one tensor");
  const int device = data.front().get_device_index();
  for (const Tensor& tensor : data) {
    STD_TORCH_CHECK(tensor.is_cuda() && tensor.get_device_index() == device,
                    "shardproof::digests: data: expected tensors on one GPU");
  }
  Planner planner;
  ForEachRun(data, runs, tensors, [&](size_t row, const sp_run& run, sp_float_format format) {
    AddTo(planner, run, row, format);
  });
  Tensor out = Results(data.front(), {static_cast<int64_t>(data.size()), kNumbersAResult});
  LaunchHead head = {};
  head.sums = static_cast<uint64_t*>(out.mutable_data_ptr());
  head.row_words = kNumbersAResult;
  head.coverage = head.sums + 4;
  Launch(planner, head, device);
  return out;
}

}  // namespace
}  // namespace shardproof::digest_op

using namespace shardproof::digest_op;

STABLE_TORCH_LIBRARY_IMPL(shardproof, CUDA, m) {
  m.impl("digest", TORCH_BOX(&DigestOnGpu));
  m.impl("digests", TORCH_BOX(&DigestsOnGpu));
}
