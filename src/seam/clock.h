// The seam to time. The pipeline reads the clock for nothing but deadlines.
#pragma once

#include <chrono>
#include <memory>

namespace shardproof {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::chrono::steady_clock::time_point Now() = 0;
};

std::shared_ptr<Clock> MakeSteadyClock();

}  // namespace shardproof
