#include "src/model/initial_value.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "src/core/check.h"
#include "src/model/model.h"
#include "src/numeric/mix.h"

namespace shardproof {
namespace {

constexpr int64_t kChunkElements = 4096;  // staging stays small whatever the tensor's size

/// Elements [start, start + count) of the global tensor, as F32 (exact for every kind).
void UniformChunk(at::Tensor& chunk, uint64_t base, uint64_t start, at::ScalarType dtype,
                  float step) {
  float* out = chunk.mutable_data_ptr<float>();
  const bool is_float = at::isFloatingType(dtype) || at::isComplexType(dtype);
  const uint64_t modulus = dtype == at::kBool ? 2 : 100;
  for (int64_t i = 0; i < chunk.numel(); ++i) {
    const uint64_t bits = Mix(base + start + i) >> 40;
    const auto centred = static_cast<int32_t>(bits) - (1 << 23);
    out[i] = is_float ? static_cast<float>(centred) * step : static_cast<float>(bits % modulus);
  }
}

/// What draws are rounded to: the tensor's own dtype, but for the exponents that F8_E8M0 is made
/// of.
at::ScalarType DtypeOfDraws(at::ScalarType dtype) {
  return dtype == at::kFloat8_e8m0fnu ? at::kByte : dtype;
}

}  // namespace

void FillInitialValue(Slot& slot, uint64_t seed, double scale) {
  SP_CHECK(!slot.value.is_meta(), "%s", slot.spec.name.c_str());
  slot.content = SlotContent::kDefined;
  const bool uniform = slot.spec.init == InitialValue::kUniform;
  const uint64_t base = Mix(Mix(seed) ^ HashOfName(slot.spec.name));
  const auto step = static_cast<float>(scale * 0x1p-23);
  at::Tensor values = at::empty({kChunkElements}, at::kFloat);
  at::Tensor chunk = at::empty({kChunkElements}, DtypeOfDraws(slot.spec.dtype));  // on the host
  if (!uniform) chunk.fill_(slot.spec.init == InitialValue::kOnes ? 1 : 0);
  uint64_t local = 0;  // bytes
  for (const ElementRun& run : slot.shard.runs) {
    for (uint64_t i = 0; i < run.count; ++i) {
      const uint64_t start = run.start + i * run.stride;
      for (uint64_t done = 0; done < run.length; done += kChunkElements) {
        const int64_t count = std::min<uint64_t>(kChunkElements, run.length - done);
        if (uniform) {
          at::Tensor part = values.narrow(0, 0, count);
          UniformChunk(part, base, start + done, chunk.scalar_type(), step);
          chunk.narrow(0, 0, count).copy_(part);
        }
        const uint64_t bytes = count * slot.ElementBytes();
        slot.CopyIn(local, chunk.const_data_ptr(), bytes);
        local += bytes;
      }
    }
  }
}

}  // namespace shardproof
