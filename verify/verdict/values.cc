#include "verify/verdict/values.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace shardproof {
namespace {

enum class Kind { kSigned, kUnsigned, kFloat, kComplex, kScale };

struct DtypeInfo {
  std::string_view name;
  uint64_t bytes;
  Kind kind;
  int exponent_bits = 0;
  int mantissa_bits = 0;
};

constexpr DtypeInfo kDtypes[] = {
    {"F64", 8, Kind::kFloat, 11, 52},   {"F32", 4, Kind::kFloat, 8, 23},
    {"F16", 2, Kind::kFloat, 5, 10},    {"BF16", 2, Kind::kFloat, 8, 7},
    {"F8_E4M3", 1, Kind::kFloat, 4, 3}, {"F8_E5M2", 1, Kind::kFloat, 5, 2},
    {"F8_E8M0", 1, Kind::kScale},       {"I64", 8, Kind::kSigned},
    {"I32", 4, Kind::kSigned},          {"I16", 2, Kind::kSigned},
    {"I8", 1, Kind::kSigned},           {"U64", 8, Kind::kUnsigned},
    {"U32", 4, Kind::kUnsigned},        {"U16", 2, Kind::kUnsigned},
    {"U8", 1, Kind::kUnsigned},         {"BOOL", 1, Kind::kUnsigned},
    {"C64", 8, Kind::kComplex, 8, 23},  {"C32", 4, Kind::kComplex, 5, 10},
};

const DtypeInfo* FindDtype(std::string_view name) {
  for (const DtypeInfo& info : kDtypes) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

uint64_t Bits(std::string_view bytes) {
  uint64_t bits = 0;
  for (size_t i = bytes.size(); i > 0; --i) {
    bits = bits << 8 | static_cast<unsigned char>(bytes[i - 1]);
  }
  return bits;
}

/// An IEEE-like pattern; F8_E4M3 is the "FN" kind: no Inf, and only all-ones is NaN.
double FloatFromBits(const DtypeInfo& info, uint64_t bits) {
  const uint64_t mantissa_all = (uint64_t{1} << info.mantissa_bits) - 1;
  const uint64_t exponent_all = (uint64_t{1} << info.exponent_bits) - 1;
  const uint64_t mantissa = bits & mantissa_all;
  const uint64_t exponent = bits >> info.mantissa_bits & exponent_all;
  const bool negative = bits >> (info.mantissa_bits + info.exponent_bits) & 1;
  const bool finite_only = info.name == "F8_E4M3";
  const int bias = static_cast<int>(exponent_all >> 1);
  double value = 0;
  if (exponent == exponent_all && (!finite_only || mantissa == mantissa_all)) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<double>(mantissa), 1 - bias - info.mantissa_bits);
  } else {
    value = std::ldexp(static_cast<double>(mantissa | (mantissa_all + 1)),
                       static_cast<int>(exponent) - bias - info.mantissa_bits);
  }
  return negative ? -value : value;
}

int64_t SignExtend(uint64_t bits, uint64_t byte_count) {
  const int shift = static_cast<int>(64 - 8 * byte_count);
  return static_cast<int64_t>(bits << shift) >> shift;
}

std::string ComplexText(const DtypeInfo& info, uint64_t bits) {
  const uint64_t width = info.bytes * 4;  // of each of the two
  const auto real = static_cast<float>(FloatFromBits(info, bits & ((uint64_t{1} << width) - 1)));
  const auto imaginary = static_cast<float>(FloatFromBits(info, bits >> width));
  return fmt::format("{}{:+}i", real, imaginary);
}

std::string Decimal(const DtypeInfo& info, uint64_t bits) {
  switch (info.kind) {
    case Kind::kSigned:
      return fmt::format("{}", SignExtend(bits, info.bytes));
    case Kind::kUnsigned:
      return info.name == "BOOL" && bits < 2 ? (bits != 0 ? "true" : "false")
                                             : fmt::format("{}", bits);
    case Kind::kScale:
      return bits == 0xff ? "nan" : fmt::format("2^{}", static_cast<int>(bits) - 127);
    case Kind::kComplex:
      return ComplexText(info, bits);
    case Kind::kFloat:
      break;
  }
  const double value = FloatFromBits(info, bits);
  // Shortest text that gives a float back; the narrower dtypes are all exact as F32.
  return info.name == "F64" ? fmt::format("{}", value)
                            : fmt::format("{}", static_cast<float>(value));
}

}  // namespace

std::optional<uint64_t> ElementBytes(std::string_view dtype) {
  const DtypeInfo* info = FindDtype(dtype);
  if (info == nullptr) return std::nullopt;
  return info->bytes;
}

std::optional<uint64_t> ImageBytes(std::string_view dtype, const std::vector<int64_t>& shape) {
  const std::optional<uint64_t> element = ElementBytes(dtype);
  if (!element) return std::nullopt;
  uint64_t bytes = *element;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) {
      return std::nullopt;
    }
  }
  return bytes;
}

std::optional<double> ElementValue(std::string_view dtype, std::string_view bytes) {
  const DtypeInfo* info = FindDtype(dtype);
  if (info == nullptr || bytes.size() != info->bytes) return std::nullopt;
  const uint64_t bits = Bits(bytes);
  switch (info->kind) {
    case Kind::kSigned:
      return static_cast<double>(SignExtend(bits, info->bytes));
    case Kind::kUnsigned:
      return static_cast<double>(bits);
    case Kind::kScale:
      return bits == 0xff ? std::numeric_limits<double>::quiet_NaN()
                          : std::ldexp(1.0, static_cast<int>(bits) - 127);
    case Kind::kFloat:
      return FloatFromBits(*info, bits);
    case Kind::kComplex:
      return std::nullopt;  // two numbers
  }
  return std::nullopt;
}

std::string ElementText(std::string_view dtype, std::string_view bytes) {
  const DtypeInfo* info = FindDtype(dtype);
  if (info != nullptr && bytes.size() == info->bytes) {
    const uint64_t bits = Bits(bytes);
    return fmt::format("{} (0x{:0{}x})", Decimal(*info, bits), bits, 2 * info->bytes);
  }
  std::string hex;
  for (size_t i = bytes.size(); i > 0; --i) {
    hex += fmt::format("{:02x}", static_cast<unsigned char>(bytes[i - 1]));
  }
  return fmt::format("? (0x{})", hex);
}

bool IsFloat(std::string_view dtype) {
  const DtypeInfo* info = FindDtype(dtype);
  return info != nullptr && (info->kind == Kind::kFloat || info->kind == Kind::kScale);
}

std::vector<int64_t> CoordinatesOf(uint64_t index, const std::vector<int64_t>& shape) {
  std::vector<int64_t> coordinates(shape.size());
  for (size_t dim = shape.size(); dim > 0; --dim) {
    const uint64_t size = shape[dim - 1] > 0 ? static_cast<uint64_t>(shape[dim - 1]) : 1;
    coordinates[dim - 1] = static_cast<int64_t>(index % size);
    index /= size;
  }
  return coordinates;
}

uint64_t IndexOf(const std::vector<int64_t>& coordinates, const std::vector<int64_t>& shape) {
  uint64_t index = 0;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    index = index * static_cast<uint64_t>(shape[dim]) + static_cast<uint64_t>(coordinates[dim]);
  }
  return index;
}

uint16_t RoundToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float RoundThroughF16(float value) {
  if (!std::isfinite(value) || value == 0) return value;
  int exponent = 0;
  std::frexp(value, &exponent);
  // 11 significant bits, fewer below the smallest normal number 2^-14.
  const int quantum = std::max(exponent - 11, -24);
  const float rounded = std::ldexp(std::nearbyint(std::ldexp(value, -quantum)), quantum);
  return std::abs(rounded) > 65504.0f ? std::copysign(std::numeric_limits<float>::infinity(), value)
                                      : rounded;
}

}  // namespace shardproof
