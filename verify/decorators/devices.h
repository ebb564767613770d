// What the two kinds of run put around the device: poison in a values run, measurement in a memory
// run, never both, since poison commits the pages that a memory run counts.
#pragma once

#include <functional>
#include <memory>

#include "src/seam/device.h"

namespace shardproof {

/// Fills every fresh allocation with bytes 0xff: NaN in every float dtype, -1 or the largest value
/// in every integer one. What is never written then shows.
std::shared_ptr<Device> PoisonFresh(std::shared_ptr<Device> inner);

/// Calls `before_release` just before an allocation is given back, when all of it that was ever
/// touched is committed: peaks lie there.
std::shared_ptr<Device> WatchReleases(std::shared_ptr<Device> inner,
                                      std::function<void()> before_release);

/// A device that has `bytes` of memory: an allocation beyond that fails, and says how much was in
/// use. Host() is not part of it.
std::shared_ptr<Device> LimitMemory(std::shared_ptr<Device> inner, uint64_t bytes);

}  // namespace shardproof
