// The digest's text form, as in SPECIFICATION.md.
#include <fmt/format.h>

#include "src/digest/digest.hpp"

namespace shardproof {
namespace {

constexpr size_t kLaneDigits = 16;

std::optional<uint64_t> ParseLane(std::string_view digits) {
  uint64_t lane = 0;
  for (char digit : digits) {
    uint64_t value;
    if (digit >= '0' && digit <= '9') {
      value = static_cast<uint64_t>(digit - '0');
    } else if (digit >= 'a' && digit <= 'f') {
      value = static_cast<uint64_t>(digit - 'a' + 10);
    } else if (digit >= 'A' && digit <= 'F') {
      value = static_cast<uint64_t>(digit - 'A' + 10);
    } else {
      return std::nullopt;
    }
    lane = lane << 4 | value;
  }
  return lane;
}

}  // namespace

std::string Digest::Hex() const { return fmt::format("{:016x}{:016x}", lane0, lane1); }

std::optional<Digest> Digest::FromHex(std::string_view text) {
  if (text.size() != 2 * kLaneDigits) return std::nullopt;
  std::optional<uint64_t> first = ParseLane(text.substr(0, kLaneDigits));
  std::optional<uint64_t> second = ParseLane(text.substr(kLaneDigits));
  if (!first || !second) return std::nullopt;
  return Digest(*first, *second);
}

}  // namespace shardproof
