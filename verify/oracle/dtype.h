// The dtypes of safetensors: sizes, float layouts, and the exact value of a float's bits.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace shardproof::oracle {

/// The bit layout of a binary float, least significant first: mantissa, exponent, sign.
struct FloatFormat {
  int exponent_bits = 0;
  int mantissa_bits = 0;
  bool has_infinity = true;  ///< false: F8_E4M3, whose only special values are NaN 0x7f and 0xff

  int Bits() const { return 1 + exponent_bits + mantissa_bits; }
  int Bias() const { return (1 << (exponent_bits - 1)) - 1; }
};

/// kComplex: a real part and an imaginary one of the format; kScale: the exponent of a power of 2.
enum class NumberKind { kBool, kUnsigned, kSigned, kFloat, kComplex, kScale, kOpaque };

/// One dtype. Opaque ones are compared by their bits only.
struct DtypeInfo {
  const char* name;
  int bytes;  ///< an element's
  NumberKind kind;
  FloatFormat format;  ///< of floats, and of each part of a complex number

  /// Of what has a format: an element, or a part of a complex one.
  int FormatBytes() const { return format.Bits() / 8; }
  bool HasFormat() const { return kind == NumberKind::kFloat || kind == NumberKind::kComplex; }
};

/// \returns null if `name` is none of KnownDtypes(). The elements of packed ones are bytes here.
const DtypeInfo* FindDtype(std::string_view name);

/// Bits of one number of a dtype that packs several into a byte: F4, F6_E2M3, F6_E3M2; 0 of others.
int PackedBits(std::string_view name);

/// "BOOL, U8, ...": for messages.
std::string KnownDtypes();

/// "F64, F32, F16, BF16, F8_E4M3, F8_E5M2": for messages.
std::string KnownFloatDtypes();

/// The product of the sizes (1 if there are none); nullopt on a negative size or beyond int64.
std::optional<uint64_t> CheckedElements(const int64_t* sizes, size_t count);

enum class FloatClass { kFinite, kInfinite, kNan };
FloatClass Classify(const FloatFormat& format, uint64_t bits);

/// The value of the bits, exactly: every format fits a double.
double DecodeFloat(const FloatFormat& format, uint64_t bits);

/// The power of 2 that a byte of F8_E8M0 stands for; 255 is NaN.
double DecodeScale(uint8_t bits);

/// `value` rounded once to the format, to nearest, ties to even. Beyond the range: infinity, or the
/// largest finite value where the format has none (F8_E4M3 saturates, as in torch 2.15; NaN stays
/// NaN). A NaN becomes the quiet NaN with an otherwise empty payload.
uint64_t EncodeFloat(const FloatFormat& format, double value);

/// The first `bytes` bytes at `data` as a little-endian number.
inline uint64_t LoadBits(const void* data, int bytes) {
  uint64_t bits = 0;
  std::memcpy(&bits, data, static_cast<size_t>(bytes));
  return bits;
}
inline void StoreBits(uint64_t bits, int bytes, void* data) {
  std::memcpy(data, &bits, static_cast<size_t>(bytes));
}

}  // namespace shardproof::oracle
