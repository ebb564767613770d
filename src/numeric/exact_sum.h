// The sum of squares of floats, exactly: the same however the floats are cut, ordered and added up,
// on any number of ranks. A clipping norm of it is the same to the bit on every mesh.
#pragma once

#include <array>
#include <cstdint>

namespace shardproof {

/// A fixed-point number wide enough for any sum of squares of fewer than 2^60 floats.
class ExactSquareSum {
 public:
  /// Digits of 32 bits, the least first; the first one's unit is 2^-298, the square of the least
  /// float.
  static constexpr int kDigits = 20;

  /// Adds values[i]^2. NaN and Inf are counted apart.
  void Add(const float* values, uint64_t count);
  /// Adds another sum, of this rank or of another one.
  void Add(const ExactSquareSum& other);

  /// What ranks exchange: digits, then how many values were NaN, and Inf. Sums of these over up to
  /// 2^31 ranks, number by number, are again a sum, which FromParts takes.
  std::array<int64_t, kDigits + 2> Parts() const;
  static ExactSquareSum FromParts(const std::array<int64_t, kDigits + 2>& parts);

  /// The sum, rounded once to the nearest double, ties to even; NaN if any value was NaN, else Inf
  /// if any was Inf.
  double Value() const;

 private:
  void Carry();

  std::array<int64_t, kDigits> digits_ = {};  ///< each of [0, 2^32) after Carry()
  int64_t nan_count_ = 0;
  int64_t inf_count_ = 0;
};

/// What gradients are multiplied by so that their norm is at most `norm_max`: 1 if it is already.
/// \param square_sum  of all gradients on all ranks, ExactSquareSum::Value.
/// \source torch.nn.utils.clip_grad_norm_: norm_max / (norm + 1e-6), at most 1
float ClippingScale(double square_sum, double norm_max);

}  // namespace shardproof
