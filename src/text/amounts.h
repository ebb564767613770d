// Amounts in words, as comparisons and audits show them.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace shardproof {

/// "1 tensor", "2 tensors".
inline std::string Count(uint64_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// "1.50 GiB", "12 bytes".
inline std::string Bytes(uint64_t bytes) {
  if (bytes >= uint64_t{1} << 30) return fmt::format("{:.2f} GiB", double(bytes) / (1 << 30));
  if (bytes >= uint64_t{1} << 20) return fmt::format("{:.2f} MiB", double(bytes) / (1 << 20));
  return Count(bytes, "byte");
}

}  // namespace shardproof
