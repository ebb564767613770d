#include "verify/oracle/cast.h"

#include <bit>
#include <cmath>

namespace shardproof::oracle {
namespace {

std::vector<float> ValueTable(const DtypeInfo& dtype) {
  std::vector<float> table(size_t{1} << (8 * dtype.bytes));
  for (size_t bits = 0; bits < table.size(); ++bits) {
    table[bits] = static_cast<float>(dtype.kind == NumberKind::kScale
                                         ? DecodeScale(static_cast<uint8_t>(bits))
                                         : DecodeFloat(dtype.format, bits));
  }
  return table;
}

/// BF16 is the upper half of F32: half of the lower half's range, less for ties to even, is added.
uint64_t Bf16OfF32(uint64_t bits) { return (bits + 0x7fff + (bits >> 16 & 1)) >> 16; }

}  // namespace

ElementCast::ElementCast(const DtypeInfo& from, const DtypeInfo& to) : from_(from), to_(to) {
  if (from.bytes <= 2) table_ = ValueTable(from);
}

void ElementCast::Cast(const char* in, uint64_t count, char* out) const {
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t bits = LoadBits(in + i * from_.bytes, from_.bytes);
    StoreBits(Convert(bits), to_.bytes, out + i * to_.bytes);
  }
}

uint64_t ElementCast::Convert(uint64_t bits) const {
  // The hardware's own conversions for what it has: they round once, to nearest even.
  double value = 0;
  if (!table_.empty()) {
    value = table_[bits];
  } else if (from_.bytes == 4) {
    value = std::bit_cast<float>(static_cast<uint32_t>(bits));
  } else {
    value = std::bit_cast<double>(bits);
  }
  if (std::isnan(value)) return EncodeFloat(to_.format, value);
  if (to_.bytes == 8) return std::bit_cast<uint64_t>(value);
  if (to_.bytes == 4) return std::bit_cast<uint32_t>(static_cast<float>(value));
  if (to_.format.exponent_bits == 8 && from_.bytes == 4) return Bf16OfF32(bits);
  return EncodeFloat(to_.format, value);
}

}  // namespace shardproof::oracle
