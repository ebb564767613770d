// Sizes as the memory properties show them.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace shardproof {

inline std::string MiB(uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace shardproof
