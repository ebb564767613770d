#include "verify/oracle/dtype.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace shardproof::oracle {
namespace {

static_assert(std::endian::native == std::endian::little,
              "byte images are little-endian; a big-endian host needs swaps in Load and StoreBits");

constexpr FloatFormat kNoFormat{};
constexpr DtypeInfo kDtypes[] = {
    {"BOOL", 1, NumberKind::kBool, kNoFormat},
    {"U8", 1, NumberKind::kUnsigned, kNoFormat},
    {"I8", 1, NumberKind::kSigned, kNoFormat},
    {"F8_E4M3", 1, NumberKind::kFloat, {4, 3, false}},
    {"F8_E5M2", 1, NumberKind::kFloat, {5, 2, true}},
    {"F8_E8M0", 1, NumberKind::kScale, kNoFormat},
    {"F8_E4M3FNUZ", 1, NumberKind::kOpaque, kNoFormat},
    {"F8_E5M2FNUZ", 1, NumberKind::kOpaque, kNoFormat},
    {"F4", 1, NumberKind::kOpaque, kNoFormat},
    {"F6_E2M3", 1, NumberKind::kOpaque, kNoFormat},
    {"F6_E3M2", 1, NumberKind::kOpaque, kNoFormat},
    {"U16", 2, NumberKind::kUnsigned, kNoFormat},
    {"I16", 2, NumberKind::kSigned, kNoFormat},
    {"F16", 2, NumberKind::kFloat, {5, 10, true}},
    {"BF16", 2, NumberKind::kFloat, {8, 7, true}},
    {"U32", 4, NumberKind::kUnsigned, kNoFormat},
    {"I32", 4, NumberKind::kSigned, kNoFormat},
    {"F32", 4, NumberKind::kFloat, {8, 23, true}},
    {"U64", 8, NumberKind::kUnsigned, kNoFormat},
    {"I64", 8, NumberKind::kSigned, kNoFormat},
    {"F64", 8, NumberKind::kFloat, {11, 52, true}},
    {"C64", 8, NumberKind::kComplex, {8, 23, true}},
    {"C32", 4, NumberKind::kComplex, {5, 10, true}},
};

std::string NamesOf(bool floats_only) {
  std::string out;
  for (const DtypeInfo& info : kDtypes) {
    if (floats_only && info.kind != NumberKind::kFloat) continue;
    if (!out.empty()) out += ", ";
    out += info.name;
  }
  return out;
}

uint64_t Ones(int bits) { return (uint64_t{1} << bits) - 1; }

/// The least bits, without sign, that stand for no finite value.
uint64_t SpecialBits(const FloatFormat& format) {
  const uint64_t all_ones_exponent = Ones(format.exponent_bits) << format.mantissa_bits;
  return format.has_infinity ? all_ones_exponent : all_ones_exponent | Ones(format.mantissa_bits);
}

/// The largest finite magnitude's bits.
uint64_t LargestBits(const FloatFormat& format) { return SpecialBits(format) - 1; }

/// What a value beyond the range becomes, without its sign.
uint64_t OverflowBits(const FloatFormat& format) {
  return format.has_infinity ? SpecialBits(format) : LargestBits(format);
}

}  // namespace

const DtypeInfo* FindDtype(std::string_view name) {
  for (const DtypeInfo& info : kDtypes) {
    if (name == info.name) return &info;
  }
  return nullptr;
}

int PackedBits(std::string_view name) {
  if (name == "F4") return 4;
  return name == "F6_E2M3" || name == "F6_E3M2" ? 6 : 0;
}

std::string KnownDtypes() { return NamesOf(false); }
std::string KnownFloatDtypes() { return NamesOf(true); }

std::optional<uint64_t> CheckedElements(const int64_t* sizes, size_t count) {
  uint64_t product = 1;
  for (size_t i = 0; i < count; ++i) {
    if (sizes[i] < 0) return std::nullopt;
    if (__builtin_mul_overflow(product, static_cast<uint64_t>(sizes[i]), &product)) {
      return std::nullopt;
    }
    if (product > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  }
  return product;
}

FloatClass Classify(const FloatFormat& format, uint64_t bits) {
  const uint64_t magnitude = bits & Ones(format.Bits() - 1);
  const uint64_t limit = SpecialBits(format);
  if (magnitude < limit) return FloatClass::kFinite;
  return format.has_infinity && magnitude == limit ? FloatClass::kInfinite : FloatClass::kNan;
}

double DecodeFloat(const FloatFormat& format, uint64_t bits) {
  const double sign = (bits >> (format.Bits() - 1)) & 1 ? -1.0 : 1.0;
  const FloatClass kind = Classify(format, bits);
  if (kind == FloatClass::kNan) return std::numeric_limits<double>::quiet_NaN();
  if (kind == FloatClass::kInfinite) return sign * std::numeric_limits<double>::infinity();
  const uint64_t mantissa = bits & Ones(format.mantissa_bits);
  const int exponent =
      static_cast<int>((bits >> format.mantissa_bits) & Ones(format.exponent_bits));
  const uint64_t implicit = exponent == 0 ? 0 : uint64_t{1} << format.mantissa_bits;
  const int scale = (exponent == 0 ? 1 : exponent) - format.Bias() - format.mantissa_bits;
  return sign * std::ldexp(static_cast<double>(implicit | mantissa), scale);
}

double DecodeScale(uint8_t bits) {
  return bits == 255 ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, bits - 127);
}

uint64_t EncodeFloat(const FloatFormat& format, double value) {
  const uint64_t sign = std::signbit(value) ? uint64_t{1} << (format.Bits() - 1) : 0;
  if (std::isnan(value)) {
    const uint64_t quiet = uint64_t{1} << (format.mantissa_bits - 1);
    return sign | SpecialBits(format) | quiet;
  }
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | OverflowBits(format);
  if (magnitude == 0) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude = f * 2^exponent, f in [0.5, 1)
  const int lowest = 1 - format.Bias();
  const int unit = std::max(exponent - 1, lowest) - format.mantissa_bits;
  // Scaled so that one unit in the last place is 1: exact, as it only moves the exponent (a double
  // that is subnormal on its own format keeps unit at that format's smallest step).
  const double scaled = std::ldexp(magnitude, -unit);
  const uint64_t rounded = static_cast<uint64_t>(std::nearbyint(scaled));
  // Adding the exponent to the rounded significand carries into the next binade where it must.
  const int binade = std::max(exponent - 1, lowest) - lowest;
  const uint64_t bits = rounded + (static_cast<uint64_t>(binade) << format.mantissa_bits);
  return sign | (bits > LargestBits(format) ? OverflowBits(format) : bits);
}

}  // namespace shardproof::oracle
