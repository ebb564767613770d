#include "src/optim/gradient.h"

#include <algorithm>
#include <cmath>

#include "src/mesh/placement.h"
#include "src/numeric/mix.h"

namespace shardproof {
namespace {

float Bounded(float value) {
  if (std::isnan(value)) return 0;
  return std::clamp(value, -1.0f, 1.0f);
}

float Gradient(uint64_t base, uint64_t index, float value) {
  const uint64_t bits = Mix(base + index) >> 40;
  const auto u = static_cast<float>(static_cast<int32_t>(bits) - (1 << 23)) * 0x1p-23f;
  return std::fma(Bounded(value), 0x1p-3f, u * 0x1p-4f);
}

}  // namespace

void FillGradient(const std::string& name, const Shard& shard, int64_t step, uint64_t begin,
                  uint64_t count, const float* values, float* gradient) {
  const uint64_t base = Mix(static_cast<uint64_t>(step)) ^ HashOfName(name);
  const uint64_t end = begin + count;
  uint64_t local = 0;  // of the run's first element
  for (const ElementRun& run : shard.runs) {
    const uint64_t first = begin > local ? (begin - local) / run.length : 0;
    for (uint64_t i = first; i < run.count && local + i * run.length < end; ++i) {
      const uint64_t at = local + i * run.length;  // of this stretch
      const uint64_t from = std::max(begin, at);
      const uint64_t to = std::min(end, at + run.length);
      for (uint64_t k = from; k < to; ++k) {
        const uint64_t index = run.start + i * run.stride + (k - at);
        gradient[k - begin] = Gradient(base, index, values[k - begin]);
      }
    }
    local += run.length * run.count;
    if (local >= end) return;
  }
}

}  // namespace shardproof
