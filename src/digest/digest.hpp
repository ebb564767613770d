// The digest as a C++ value: text form, sums, comparison. Thin over the C ABI.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "src/digest/digest.h"

namespace shardproof {

/// A digest or a coverage sum; see SPECIFICATION.md.
struct Digest {
  uint64_t lane0 = 0;
  uint64_t lane1 = 0;

  Digest() = default;
  Digest(uint64_t a, uint64_t b) : lane0(a), lane1(b) {}
  explicit Digest(const sp_digest& raw) : lane0(raw.lane[0]), lane1(raw.lane[1]) {}

  Digest& operator+=(const Digest& other) {
    lane0 += other.lane0;
    lane1 += other.lane1;
    return *this;
  }
  friend Digest operator+(Digest a, const Digest& b) { return a += b; }
  friend bool operator==(const Digest&, const Digest&) = default;

  /// 32 lower-case hexadecimal digits, lane 0 first.
  std::string Hex() const;
  /// \returns nullopt unless `text` is exactly 32 hexadecimal digits.
  static std::optional<Digest> FromHex(std::string_view text);
};

}  // namespace shardproof
