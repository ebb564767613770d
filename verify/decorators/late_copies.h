// Copies on side streams that happen late: what is read before they are waited for, or changed
// under them, is wrong here, and always alike.
#pragma once

#include <cstdint>
#include <memory>

#include "src/seam/device.h"

namespace shardproof {

enum class CopyTiming {
  kWhenWaited,  ///< none happens before somebody waits for it, or for a later one of its stream
  kSeeded,      ///< each happens at some call of the device before that, which the seed picks
};

/// A device whose StartCopy starts and does nothing yet: a copy reads and writes at a time of its
/// own. Copies of one stream keep their order, those of two streams have none. What is never waited
/// for may never happen.
std::shared_ptr<Device> DelayCopies(std::shared_ptr<Device> inner, CopyTiming timing,
                                    uint64_t seed);

}  // namespace shardproof
