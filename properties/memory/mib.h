// Sizes as the memory properties show them.
#pragma once

#include <cstdint>
#include <string>

#include <fmt/format.h>

namespace shardproof {

inline std::string MiB(uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace shardproof
