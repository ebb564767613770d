// What each kind of RoPE makes of a power of theta, operation by operation as Transformers has it.
#pragma once

#include <cstdint>

#include "verify/case/case.h"

namespace shardproof::oracle {

/// `value` rounded to F32. Of +, -, *, / on F32 operands in double, this is the F32 operation: 53
/// bits are enough that rounding twice is rounding once. And no compiler fuses what is rounded.
inline float F32(double value) { return static_cast<float>(value); }

/// Whether a number divided by a tensor is that, or the number times the reciprocal.
enum class Division { kByReciprocal, kDirect };

/// The ramp of yarn, from 0 (frequencies that stay) to 1 (frequencies divided by the factor).
struct RopeRamp {
  float low = 0;
  float span = 1;

  float At(int64_t i) const;
};

/// One buffer's formula.
class RopeFormula {
 public:
  /// \param rope  has fields that fit (DeriveFrequencies checks them); must outlive this.
  explicit RopeFormula(const RopeCase& rope);

  /// Inverse frequency `i`, where theta^(2i/dim) is `power`.
  float Apply(int64_t i, float power, Division division) const;

 private:
  const RopeCase& rope_;
  RopeRamp ramp_;
};

/// Whether yarn's ramp has two ends that F32 tells apart.
bool HasRamp(const RopeCase& rope);

}  // namespace shardproof::oracle
