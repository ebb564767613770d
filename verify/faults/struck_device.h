// A device whose allocations may fail.
#pragma once

#include <memory>

#include "src/seam/device.h"
#include "verify/fault/fault.h"

namespace shardproof {

/// Where the point strikes an allocation fails, with an error that names what it was for and its
/// bytes.
std::shared_ptr<Device> FailAllocations(std::shared_ptr<Device> inner,
                                        std::shared_ptr<FaultPoint> point);

}  // namespace shardproof
