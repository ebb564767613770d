// Where the host reads what a slot holds without a copy.
#pragma once

#include <cstddef>

#include "src/model/model.h"

namespace shardproof {

/// The bytes of `value` in row-major order; null if they are in a device's memory, lie in another
/// order, or there are none.
inline std::byte* HostBytes(const Slot& slot) {
  const bool on_host = slot.device == nullptr || !slot.device->Holds(slot.value);
  if (!on_host || !slot.value.is_contiguous()) return nullptr;
  return static_cast<std::byte*>(slot.value.mutable_data_ptr());
}

}  // namespace shardproof
