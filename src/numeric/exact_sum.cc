#include "src/numeric/exact_sum.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace shardproof {
namespace {

constexpr int kExponents = 255;          // of finite floats: 0 for those below 2^-126
constexpr uint64_t kFlushAfter = 65535;  // squares of 48 bits that a bin of 64 takes

/// Adds `bits` x 2^shift, shift counted from the first digit's unit.
void AddShifted(uint64_t bits, int shift, std::array<int64_t, ExactSquareSum::kDigits>& digits) {
  unsigned __int128 wide = static_cast<unsigned __int128>(bits) << (shift % 32);
  for (int digit = shift / 32; wide != 0; ++digit, wide >>= 32) {
    digits[static_cast<size_t>(digit)] += static_cast<int64_t>(static_cast<uint32_t>(wide));
  }
}

}  // namespace

void ExactSquareSum::Add(const float* values, uint64_t count) {
  for (uint64_t begin = 0; begin < count; begin += kFlushAfter) {
    const uint64_t end = begin + kFlushAfter < count ? begin + kFlushAfter : count;
    // Squares of floats of one exponent have one unit: their mantissas' squares add up as integers.
    std::array<uint64_t, kExponents + 1> bins = {};
    for (uint64_t i = begin; i < end; ++i) {
      uint32_t bits;
      std::memcpy(&bits, values + i, 4);
      const uint32_t exponent = (bits >> 23) & 0xff;
      const uint64_t fraction = bits & 0x7fffff;
      if (exponent == kExponents) [[unlikely]] {
        (fraction != 0 ? nan_count_ : inf_count_) += 1;
        continue;
      }
      const uint64_t mantissa = exponent == 0 ? fraction : fraction | 0x800000;
      bins[exponent] += mantissa * mantissa;
    }
    for (int exponent = 0; exponent < kExponents; ++exponent) {
      const uint64_t sum = bins[static_cast<size_t>(exponent)];
      // A mantissa's unit is 2^(exponent - 150), and that of those below 2^-126 is 2^-149.
      AddShifted(sum, 2 * (exponent == 0 ? 0 : exponent - 1), digits_);
    }
    Carry();
  }
}

void ExactSquareSum::Add(const ExactSquareSum& other) {
  for (size_t i = 0; i < digits_.size(); ++i) digits_[i] += other.digits_[i];
  nan_count_ += other.nan_count_;
  inf_count_ += other.inf_count_;
  Carry();
}

void ExactSquareSum::Carry() {
  int64_t carry = 0;
  for (int64_t& digit : digits_) {
    digit += carry;
    carry = digit >> 32;
    digit &= 0xffffffff;
  }
}

std::array<int64_t, ExactSquareSum::kDigits + 2> ExactSquareSum::Parts() const {
  std::array<int64_t, kDigits + 2> parts = {};
  for (size_t i = 0; i < digits_.size(); ++i) parts[i] = digits_[i];
  parts[kDigits] = nan_count_;
  parts[kDigits + 1] = inf_count_;
  return parts;
}

ExactSquareSum ExactSquareSum::FromParts(const std::array<int64_t, kDigits + 2>& parts) {
  ExactSquareSum sum;
  for (size_t i = 0; i < sum.digits_.size(); ++i) sum.digits_[i] = parts[i];
  sum.nan_count_ = parts[kDigits];
  sum.inf_count_ = parts[kDigits + 1];
  sum.Carry();
  return sum;
}

double ExactSquareSum::Value() const {
  if (nan_count_ > 0) return std::numeric_limits<double>::quiet_NaN();
  if (inf_count_ > 0) return std::numeric_limits<double>::infinity();
  int top = kDigits - 1;
  while (top >= 0 && digits_[static_cast<size_t>(top)] == 0) --top;
  if (top < 0) return 0;
  // The upper 96 bits hold 65 that count at least; of the rest only whether there is any.
  unsigned __int128 upper = 0;
  for (int digit = top; digit > top - 3; --digit) {
    upper =
        upper << 32 | static_cast<uint64_t>(digit < 0 ? 0 : digits_[static_cast<size_t>(digit)]);
  }
  bool is_more = false;
  for (int digit = top - 3; digit >= 0; --digit)
    is_more |= digits_[static_cast<size_t>(digit)] != 0;
  int shift =
      0;  // to the 64 bits that are rounded: 53, and 11 behind them with all else in the last
  while (upper >> 64 != 0) {
    is_more |= (upper & 1) != 0;
    upper >>= 1;
    ++shift;
  }
  const uint64_t bits = static_cast<uint64_t>(upper) | (is_more ? 1 : 0);
  return std::ldexp(static_cast<double>(bits), shift + 32 * (top - 2) - 298);
}

float ClippingScale(double square_sum, double norm_max) {
  const double scale = norm_max / (std::sqrt(square_sum) + 1e-6);
  return scale < 1 || std::isnan(scale) ? static_cast<float>(scale) : 1.0f;
}

}  // namespace shardproof
