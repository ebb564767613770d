// Memory that only Device::Copy reaches, on a machine without a GPU: what a GPU's memory is to a
// pipeline. Whoever touches it otherwise dies of SIGSEGV.
#pragma once

#include <memory>

#include "src/seam/device.h"

namespace shardproof {

std::shared_ptr<Device> MakeApartDevice();

}  // namespace shardproof
