#include "src/optim/gradient.h"

#include <algorithm>

#include "src/mesh/placement.h"
#include "src/numeric/made_gradient.h"
#include "src/numeric/mix.h"

namespace shardproof {

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
      MakeGradients(base, run.start + i * run.stride + (from - at), to - from,
                    values + (from - begin), gradient + (from - begin));
    }
    local += run.length * run.count;
  }
}

}  // namespace shardproof
