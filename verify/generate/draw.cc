#include "verify/generate/draw.h"

#include <rapidcheck.h>

namespace shardproof::draw {

Case CaseOf(const std::function<Case()>& make, uint64_t seed, uint64_t index) {
  constexpr int kSize = 100;  // of nothing: no generator here grows with it
  const auto generator = rc::gen::exec([&make] { return make(); });
  const rc::Random random(rc::Random::Key{seed, index, 0, 0});
  return generator(random, kSize).value();
}

int64_t Between(int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); }

bool Chance(int percent) { return Between(1, 100) <= percent; }

}  // namespace shardproof::draw
