// Buffers that a formula defines: how far another correct evaluation may be, and what is refused.
#include "verify/oracle/derived.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "verify/case/names.h"
#include "verify/oracle/oracle.h"
#include "verify/oracle/quote.h"
#include "verify/oracle/rope_formula.h"

namespace shardproof::oracle {
namespace {

// Every kind begins with p(i) = theta^e(i), e(i) = 2i / dim, and goes on with F32 operations that
// IEEE 754 defines to the bit: +, -, *, / and comparisons, each rounded on its own, as
// Transformers' eager mode on a CPU has them (a CUDA kernel may multiply by 1 / dim, which is the
// same only where dim is a power of two). 2i and dim are exact in F32, so e is the same bits for
// all. Only pow is left to the math library; vectorised ones promise 1 ulp. Hence
//
//   the correct results for element i are { g(p) : p an F32 number within 1 ulp of theta^e },
//
// with g what the kind does with p. That set has two or three numbers, so it is not estimated but
// worked out: ulp_max is the largest distance of any of them from ours, over all elements. This
// holds whatever g is: where a kind subtracts near numbers (llama3, at the end of its ramp) or
// branches on p, the bound grows as it must. A division of a number by a tensor may also be written
// as one by the tensor's reciprocal: both are in the set.
//
// For g(p) = 1/p (kinds default and dynamic) the bound is at most 2, by hand: theta^e here is from
// pow in double, whose own error is far below half an F32 ulp, so ours and another p are at most
// 1 ulp apart. Write p = m * 2^k with 1 <= m < 2. Moving p by 1 ulp = 2^(k-23) moves 1/p by at most
// 2^(k-23) / p^2 = 2^(-k-23) / m^2. An ulp of 1/p, which lies in (2^(-k-1), 2^-k], is 2^(-k-24).
// That is 2 / m^2 ulp: less than 2, or exactly 2 where m = 1. Rounding the two quotients to nearest
// moves each by at most 0.5, so the results are less than 3 ulp apart for m > 1, hence at most 2,
// ulps being whole. For m = 1 one quotient is exact and the other is 2 ulp off before it is
// rounded: 2 again. A further product with or quotient by a constant (linear, proportional,
// longrope) at most doubles a distance, where the mantissa falls below 1 and is shifted, and adds a
// rounding at either end: at most 5.

/// F32 numbers of one sign: how many steps lie between.
int64_t UlpDistance(float a, float b) {
  return std::abs(int64_t{std::bit_cast<int32_t>(a)} - int64_t{std::bit_cast<int32_t>(b)});
}

/// The F32 numbers within 1 ulp of `power`, which is in F32's normal range and good to far less.
std::vector<float> Within1Ulp(double power) {
  const float nearest = F32(power);
  const int exponent = std::ilogb(power);
  // A little more, for the error of `power` itself.
  const double reach = std::ldexp(1.0 + 1e-6, exponent - 23);
  std::vector<float> all = {nearest};
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float towards : {-kInfinity, kInfinity}) {
    for (float p = std::nextafter(nearest, towards); std::abs(p - power) <= reach;) {
      all.push_back(p);
      p = std::nextafter(p, towards);
    }
  }
  return all;
}

/// Where F32 has 24 bits, on which "1 ulp" and the bound rest.
bool IsNormal(double value) {
  return value >= std::numeric_limits<float>::min() && value <= std::numeric_limits<float>::max();
}

/// Appends element `i` and widens the bound by what else it may be.
Status AddElement(const RopeCase& rope, const RopeFormula& formula, int64_t i,
                  DerivedExpectation& out) {
  const double base = F32(rope.theta);  // a Python float meets an F32 tensor as an F32 number
  const float exponent = F32(static_cast<double>(2 * i) / static_cast<double>(rope.dim));
  const double power = std::pow(base, static_cast<double>(exponent));
  const auto refuse = [&](double found) -> Status {
    return BadInput(fmt::format("{}: expected numbers that F32 can hold, found {} at frequency {}",
                                out.formula, found, i));
  };
  if (!IsNormal(power)) return refuse(power);
  // theta^0 is 1 in every library.
  const std::vector<float> powers = i == 0 ? std::vector{1.0f} : Within1Ulp(power);
  const float value = formula.Apply(i, powers[0], Division::kByReciprocal);
  for (const float p : powers) {
    for (const Division division : {Division::kByReciprocal, Division::kDirect}) {
      const float other = formula.Apply(i, p, division);
      if (!IsNormal(other)) return refuse(other);
      out.ulp_max = std::max(out.ulp_max, UlpDistance(value, other));
    }
  }
  out.values.push_back(value);
  return Ok();
}

std::string Text(const RopeCase& rope) {
  std::string text = fmt::format("rope {}, theta {}, dim {}", rope.type, rope.theta, rope.dim);
  const bool has_factor = rope.type == "linear" || rope.type == "yarn" || rope.type == "llama3" ||
                          rope.type == "proportional";
  if (has_factor) text += fmt::format(", factor {}", rope.factor);
  if (rope.type == "yarn") {
    text += fmt::format(", beta {} to {}{}", rope.beta_fast, rope.beta_slow,
                        rope.truncate ? "" : " (not truncated)");
  }
  if (rope.type == "llama3") {
    text += fmt::format(", low {}, high {}", rope.low_freq_factor, rope.high_freq_factor);
  }
  if (rope.type == "yarn" || rope.type == "llama3") {
    text += fmt::format(", original context {}", rope.original_max_position_embeddings);
  }
  if (rope.type == "longrope") text += ", short factors";
  if (rope.type == "proportional") text += fmt::format(", {} rotated", rope.rotated);
  return text;
}

/// What would divide by zero or read out of range.
Status CheckFits(const RopeCase& rope, int64_t count) {
  const auto& known = KnownRopes();
  const auto refuse = [&](const std::string& expected) -> Status {
    return BadInput(
        fmt::format("rope {}: expected {} for {} frequencies", rope.type, expected, count));
  };
  if (std::find(known.begin(), known.end(), rope.type) == known.end()) {
    return BadInput(
        fmt::format("rope_type: expected {}, found {}", ListNames(known), Quote(rope.type)));
  }
  if ((rope.dim + 1) / 2 != count) return refuse(fmt::format("another dim than {}", rope.dim));
  if (!(rope.theta > 0) || !(rope.factor > 0)) return refuse("theta and factor above 0");
  if (rope.type == "longrope" && static_cast<int64_t>(rope.short_factor.size()) != count) {
    return refuse(fmt::format("another number of factors than {}", rope.short_factor.size()));
  }
  if (rope.type == "proportional" && (rope.rotated < 0 || rope.rotated > count)) {
    return refuse(fmt::format("another number of rotated ones than {}", rope.rotated));
  }
  const bool has_origin = rope.type == "yarn" || rope.type == "llama3";
  if (has_origin && rope.original_max_position_embeddings < 1) {
    return refuse("original_max_position_embeddings above 0");
  }
  const bool is_yarn = rope.type == "yarn";
  if (is_yarn && (rope.dim % 2 != 0 || rope.theta <= 1))
    return refuse("an even dim, theta above 1");
  if (is_yarn && (!(rope.beta_fast > 0) || !(rope.beta_slow > 0))) return refuse("betas above 0");
  if (is_yarn && !HasRamp(rope)) return refuse("a ramp with two ends");
  if (rope.type == "llama3" && (!(rope.low_freq_factor > 0) || !(rope.high_freq_factor > 0) ||
                                rope.low_freq_factor == rope.high_freq_factor)) {
    return refuse("low_freq_factor and high_freq_factor above 0 that differ");
  }
  return Ok();
}

}  // namespace

Result<DerivedExpectation> DeriveFrequencies(const RopeCase& asked, int64_t count) {
  RopeCase rope = asked;
  if (rope.dim == 0) rope.dim = 2 * count;
  SP_TRY(CheckFits(rope, count));
  DerivedExpectation out;
  out.formula = Text(rope);
  const RopeFormula formula(rope);
  const int64_t rotated = rope.type == "proportional" ? rope.rotated : count;
  for (int64_t i = 0; i < rotated; ++i) SP_TRY(AddElement(rope, formula, i, out));
  out.values.resize(static_cast<size_t>(count), 0.0f);
  return out;
}

std::vector<float> DefaultInverseFrequencies(double theta, int64_t dim) {
  const auto derived = DeriveFrequencies({.theta = theta, .dim = dim}, (dim + 1) / 2);
  return derived.ok() ? derived.value().values : std::vector<float>();
}

}  // namespace shardproof::oracle
