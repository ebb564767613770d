#include "src/seam/clock.h"

namespace shardproof {
namespace {

class SteadyClock : public Clock {
 public:
  std::chrono::steady_clock::time_point Now() override { return std::chrono::steady_clock::now(); }
};

}  // namespace

std::shared_ptr<Clock> MakeSteadyClock() { return std::make_shared<SteadyClock>(); }

}  // namespace shardproof
