#include "verify/oracle/rope_formula.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace shardproof::oracle {
namespace {

float Divide(double number, float by, Division division) {
  const double scalar = F32(number);
  return division == Division::kDirect ? F32(scalar / by) : F32(scalar * F32(1.0 / by));
}

/// In double, as Python has it. The dim at which positions turn `rotations` times over the original
/// context.
double CorrectionDim(const RopeCase& rope, double rotations) {
  const double context = static_cast<double>(rope.original_max_position_embeddings);
  const double dim = static_cast<double>(rope.dim);
  return (dim * std::log(context / (rotations * 2 * std::numbers::pi))) /
         (2 * std::log(rope.theta));
}

RopeRamp YarnRamp(const RopeCase& rope) {
  double low = CorrectionDim(rope, rope.beta_fast);
  double high = CorrectionDim(rope, rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rope.dim - 1));
  if (low == high) high += 0.001;
  return {F32(low), F32(high - low)};
}

float Yarn(const RopeCase& rope, const RopeRamp& ramp, int64_t i, float p) {
  const float kept = F32(1.0 / p);
  const float stretched = F32(1.0 / F32(double{F32(rope.factor)} * p));
  const float keep = F32(1.0 - ramp.At(i));
  const float stretch = F32(1.0 - keep);
  return F32(double{F32(double{stretched} * stretch)} + F32(double{kept} * keep));
}

float Llama3(const RopeCase& rope, float p, Division division) {
  const double context = static_cast<double>(rope.original_max_position_embeddings);
  const float factor = F32(rope.factor);
  const float f = F32(1.0 / p);
  const float wavelength = Divide(2 * std::numbers::pi, f, division);
  if (wavelength > F32(context / rope.low_freq_factor)) return F32(double{f} / factor);
  if (wavelength < F32(context / rope.high_freq_factor)) return f;
  const float turns = Divide(context, wavelength, division);
  const float above = F32(double{turns} - F32(rope.low_freq_factor));
  const float smooth = F32(double{above} / F32(rope.high_freq_factor - rope.low_freq_factor));
  const float rest = F32(double{F32(double{F32(1.0 - smooth)} * f)} / factor);
  return F32(double{rest} + F32(double{smooth} * f));
}

}  // namespace

float RopeRamp::At(int64_t i) const {
  const float linear = F32(double{F32(static_cast<double>(i) - low)} / span);
  return std::clamp(linear, 0.0f, 1.0f);
}

RopeFormula::RopeFormula(const RopeCase& rope) : rope_(rope) {
  if (rope.type == "yarn") ramp_ = YarnRamp(rope);
}

float RopeFormula::Apply(int64_t i, float power, Division division) const {
  if (rope_.type == "linear" || rope_.type == "proportional") {
    return F32(double{F32(1.0 / power)} / F32(rope_.factor));
  }
  if (rope_.type == "longrope") {
    return F32(1.0 / F32(double{F32(rope_.short_factor[static_cast<size_t>(i)])} * power));
  }
  if (rope_.type == "yarn") return Yarn(rope_, ramp_, i, power);
  if (rope_.type == "llama3") return Llama3(rope_, power, division);
  return F32(1.0 / power);
}

bool HasRamp(const RopeCase& rope) { return YarnRamp(rope).span != 0; }

}  // namespace shardproof::oracle
