// Patterns in what the elements are: cleared, never written, flipped, swapped, rounded.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "verify/compare/patterns.h"

namespace shardproof::compare {
namespace {

using oracle::DtypeInfo;
using oracle::LoadBits;
using oracle::NumberKind;

constexpr uint64_t kFewestCutOff = 8;      // elements: fewer may be so by chance
constexpr uint64_t kFewestMultiplied = 4;  // elements: fewer may be multiples by chance

bool AllAre(std::string_view bytes, char value) {
  return std::all_of(bytes.begin(), bytes.end(), [value](char c) { return c == value; });
}

/// Whether every element that differs consists of the byte `value` on the side that is seen.
bool DifferingAre(const Images& images, char value) {
  for (uint64_t i = images.first; i <= images.last; ++i) {
    if (images.Differs(i) && !AllAre(images.Seen(i), value)) return false;
  }
  return true;
}

std::string Extent(const Images& images) {
  if (images.differing == images.elements) return "all of it";
  if (images.differing == images.last - images.first + 1) {
    return images.differing == 1
               ? fmt::format("element {}", images.Global(images.first))
               : fmt::format("elements {} to {}, one contiguous stretch",
                             images.Global(images.first), images.Global(images.last));
  }
  return fmt::format("{} elements between {} and {}", images.differing, images.Global(images.first),
                     images.Global(images.last));
}

uint64_t Bits(std::string_view element, const DtypeInfo& dtype) {
  return LoadBits(element.data(), dtype.bytes);
}

uint64_t ChangedBits(const Images& images, uint64_t i) {
  return Bits(images.Expected(i), *images.dtype) ^ Bits(images.Seen(i), *images.dtype);
}

/// Whether seen is `change`(expected) for every element.
template <typename Change>
bool EveryElement(const Images& images, Change change) {
  for (uint64_t i = 0; i < images.elements; ++i) {
    const uint64_t expected = Bits(images.Expected(i), *images.dtype);
    if (Bits(images.Seen(i), *images.dtype) != change(expected)) return false;
  }
  return true;
}

uint64_t ThroughFormat(const DtypeInfo& dtype, const DtypeInfo& narrow, uint64_t bits) {
  const double value = oracle::DecodeFloat(dtype.format, bits);
  const uint64_t rounded = oracle::EncodeFloat(narrow.format, value);
  return oracle::EncodeFloat(dtype.format, oracle::DecodeFloat(narrow.format, rounded));
}

}  // namespace

Sentence AllZeros(const Images& images) {
  if (AllAre(images.seen, 0)) return "all zeros: cleared, or allocated and never filled";
  if (AllAre(images.expected, 0)) return "the expected side is all zeros, the other is not";
  // A single zero is as well a value; a flipped bit explains it better where it can.
  if (images.differing < 2 || !DifferingAre(images, 0)) return std::nullopt;
  return fmt::format("zeros in {}; equal elsewhere", Extent(images));
}

Sentence NeverWritten(const Images& images) {
  if (images.dtype->bytes == 1 && images.differing < 2) return std::nullopt;
  if (!DifferingAre(images, static_cast<char>(0xff))) return std::nullopt;
  return fmt::format("never written: the poison pattern 0xff fills {}", Extent(images));
}

Sentence FlippedBit(const Images& images) {
  if (images.differing != 1) return std::nullopt;
  const uint64_t mask = ChangedBits(images, images.first);
  if (!std::has_single_bit(mask)) return std::nullopt;
  return fmt::format("bit {} of element {} is flipped", std::countr_zero(mask),
                     images.Global(images.first));
}

Sentence SameBitFlipped(const Images& images) {
  const uint64_t mask = ChangedBits(images, images.first);
  if (!std::has_single_bit(mask) || images.dtype->kind == NumberKind::kBool) return std::nullopt;
  for (uint64_t i = images.first; i <= images.last; ++i) {
    const uint64_t change = ChangedBits(images, i);
    if (change != 0 && change != mask) return std::nullopt;
  }
  return fmt::format("bit {} is flipped in {}, no other bit differs", std::countr_zero(mask),
                     Extent(images));
}

Sentence ByteSwapped(const Images& images) {
  const int bytes = images.dtype->bytes;
  if (bytes == 1) return std::nullopt;
  const auto swap = [bytes](uint64_t bits) { return __builtin_bswap64(bits) >> (64 - 8 * bytes); };
  if (!EveryElement(images, swap)) return std::nullopt;
  return fmt::format("byte-swapped: the {} bytes of every element are in reverse order", bytes);
}

Sentence Rounded(const Images& images) {
  const DtypeInfo& dtype = *images.dtype;
  if (dtype.kind != NumberKind::kFloat) return std::nullopt;
  for (const char* name : {"F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"}) {
    const DtypeInfo& narrow = *oracle::FindDtype(name);
    if (narrow.format.mantissa_bits >= dtype.format.mantissa_bits) continue;
    if (EveryElement(images, [&](uint64_t b) { return ThroughFormat(dtype, narrow, b); })) {
      return fmt::format(
          "rounded through {}: every element equals the expected one cast to it and "
          "back",
          name);
    }
  }
  if (dtype.bytes == 4 && EveryElement(images, [](uint64_t b) { return b & 0xffff0000; })) {
    return "truncated to BF16: the lower 16 bits of every element are cut off";
  }
  return std::nullopt;
}

Sentence OneMore(const Images& images) {
  const DtypeInfo& dtype = *images.dtype;
  if (dtype.kind != NumberKind::kFloat) return std::nullopt;
  for (const double one : {1.0, -1.0}) {
    const auto add = [&](uint64_t bits) {
      return oracle::EncodeFloat(dtype.format, oracle::DecodeFloat(dtype.format, bits) + one);
    };
    if (EveryElement(images, add)) {
      return fmt::format(
          "every element is the expected one {} 1, as of a norm that keeps its weight less one",
          one > 0 ? "plus" : "minus");
    }
  }
  return std::nullopt;
}

/// What a cast that cuts bits off makes of values that were to be rounded: each element that
/// differs is the number before, towards zero.
Sentence CutOff(const Images& images) {
  const DtypeInfo& dtype = *images.dtype;
  if (dtype.kind != NumberKind::kFloat || dtype.bytes > 2 || images.differing < kFewestCutOff)
    return std::nullopt;
  for (uint64_t i = 0; i < images.elements; ++i) {
    if (!images.Differs(i)) continue;
    if (Bits(images.Expected(i), dtype) != Bits(images.Seen(i), dtype) + 1) return std::nullopt;
  }
  return fmt::format("cut off, not rounded: {} elements are one step of {} nearer to zero",
                     images.differing, dtype.name);
}

/// Each element is 1 divided by the expected one.
Sentence Inverted(const Images& images) {
  const DtypeInfo& dtype = *images.dtype;
  if (dtype.kind != NumberKind::kFloat || images.differing < kFewestMultiplied) return std::nullopt;
  const double step = std::ldexp(2.0, -dtype.format.mantissa_bits);
  bool is_any_far = false;  // of numbers near 1 nothing tells
  for (uint64_t i = 0; i < images.elements; ++i) {
    const double expected = oracle::DecodeFloat(dtype.format, Bits(images.Expected(i), dtype));
    const double seen = oracle::DecodeFloat(dtype.format, Bits(images.Seen(i), dtype));
    if (!(std::fabs(seen * expected - 1) <= step)) return std::nullopt;
    is_any_far = is_any_far || std::fabs(seen) > 2 * std::fabs(expected) ||
                 std::fabs(expected) > 2 * std::fabs(seen);
  }
  if (!is_any_far) return std::nullopt;
  return "every element is 1 divided by the expected one";
}

Sentence Multiplied(const Images& images) {
  const DtypeInfo& dtype = *images.dtype;
  if (dtype.kind != NumberKind::kFloat || images.differing < kFewestMultiplied) return std::nullopt;
  const auto number = [&](std::string_view element) {
    return oracle::DecodeFloat(dtype.format, Bits(element, dtype));
  };
  // Of the largest element the factor is known best.
  uint64_t largest = images.first;
  for (uint64_t i = 0; i < images.elements; ++i) {
    if (std::fabs(number(images.Expected(i))) > std::fabs(number(images.Expected(largest))))
      largest = i;
  }
  const double factor = number(images.Seen(largest)) / number(images.Expected(largest));
  if (!std::isfinite(factor) || factor == 0) return std::nullopt;
  const double step = std::ldexp(2.0, -dtype.format.mantissa_bits);
  if (std::fabs(factor - 1) <= step) return std::nullopt;  // so are roundings
  for (uint64_t i = 0; i < images.elements; ++i) {
    const double expected = number(images.Expected(i)) * factor, seen = number(images.Seen(i));
    const double smallest = std::numeric_limits<float>::min();  // below, steps are no part of it
    const bool is_near = std::fabs(seen - expected) <= step * std::fabs(expected) + smallest;
    if (!is_near) return std::nullopt;
  }
  return fmt::format("every element is {:.6g} times the expected one", factor);
}

std::string NoPattern(const Images& images) {
  const DtypeInfo& dtype = *images.dtype;
  std::string text =
      fmt::format("no simple pattern: {} element{} differ{}", images.differing,
                  images.differing == 1 ? "" : "s", images.differing == 1 ? "s" : "");
  const bool is_number = dtype.kind != NumberKind::kOpaque && dtype.kind != NumberKind::kComplex &&
                         dtype.kind != NumberKind::kScale;
  if (!is_number) return text;
  double largest = -1;
  uint64_t nan_count = 0;
  for (uint64_t i = images.first; i <= images.last; ++i) {
    if (!images.Differs(i)) continue;
    const auto value = [&](std::string_view element) {
      const uint64_t bits = Bits(element, dtype);
      if (dtype.kind == NumberKind::kFloat) return oracle::DecodeFloat(dtype.format, bits);
      if (dtype.kind != NumberKind::kSigned) return static_cast<double>(bits);
      const int unused = 64 - 8 * dtype.bytes;
      return static_cast<double>(static_cast<int64_t>(bits << unused) >> unused);
    };
    const double difference = std::fabs(value(images.Expected(i)) - value(images.Seen(i)));
    std::isnan(difference) ? void(++nan_count) : void(largest = std::max(largest, difference));
  }
  if (largest >= 0) text += fmt::format(", largest |difference| {:.6g}", largest);
  if (nan_count > 0) text += fmt::format(", {} of them with a NaN or Inf", nan_count);
  return text;
}

}  // namespace shardproof::compare
