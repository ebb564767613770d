#include "verify/compare/number_pair.h"

#include <algorithm>
#include <cmath>

#include "verify/compare/bounds.h"
#include "verify/maps/numbers.h"

namespace shardproof::compare {
namespace {

constexpr size_t kSpreadMax = 128;
constexpr double kSameUnit = 0x1p-19;
constexpr double kFarEnergy = 1.5;
constexpr double kPartMax = 1000;  // counted of one error

}  // namespace

Reader OpenNumbers(const Inputs& inputs, const maps::View& view) {
  // What a map computes beside that is rounded to F32.
  return maps::WithHalfSteps(inputs.Open(view, 0x1p-24));
}

double PartOfBound(const Number& a, const Number& b) {
  if (std::isnan(a.value) || std::isnan(b.value))
    return std::isnan(a.value) && std::isnan(b.value) ? 0 : HUGE_VAL;
  if (a.value == b.value) return 0;
  const double part = std::abs(a.value - b.value) / (a.bound + b.bound);
  // Nothing is within a bound that is not finite, as of an infinite scale.
  return std::isfinite(part) && std::isfinite(a.bound + b.bound) ? part : HUGE_VAL;
}

bool AreSame(const Number& a, const Number& b) {
  if (std::isnan(a.value) || std::isnan(b.value)) return std::isnan(a.value) == std::isnan(b.value);
  if (std::isinf(a.value) || std::isinf(b.value)) return a.value == b.value;
  return std::abs(a.value - b.value) <= kSameUnit * std::max(std::abs(a.value), std::abs(b.value));
}

void Spread::Add(uint64_t index) {
  if (seen_++ % every_ != 0) return;
  if (kept_.size() == kSpreadMax) {
    for (size_t i = 0; i < kSpreadMax / 2; ++i) kept_[i] = kept_[2 * i];
    kept_.resize(kSpreadMax / 2);
    every_ *= 2;
    if ((seen_ - 1) % every_ != 0) return;
  }
  kept_.push_back(index);
}

Result<NumberPair> Hold(TensorReader& a, TensorReader& b) {
  NumberPair pair{.elements = b.elements()};
  const auto visit = [&](uint64_t start, const Number* x, const Number* y, uint64_t count) {
    double errors = 0;
    double values = 0;
    for (uint64_t i = 0; i < count; ++i) {
      if (x[i].value == y[i].value) {
        values += x[i].value * x[i].value;
        continue;
      }
      const double part = PartOfBound(x[i], y[i]);
      const double error = x[i].value - y[i].value;
      if (std::isfinite(part)) {
        errors += error * error;
        values += x[i].value * x[i].value;
      }
      if (part > pair.worst) {
        pair.worst = part;
        pair.worst_index = start + i;
        pair.worst_a = x[i];
        pair.worst_b = y[i];
      }
      if (part > 1) {
        ++pair.beyond;
        pair.beyond_at.Add(start + i);
      }
      if (!AreSame(x[i], y[i])) {
        ++pair.unlike;
        pair.unlike_at.Add(start + i);
      }
    }
    pair.is_far = pair.is_far || (count >= 256 && errors > kFarEnergy * values);
  };
  SP_TRY(WalkNumbers(a, b, 0, b.elements(), visit));
  return pair;
}

Result<Fit> FitOf(TensorReader& a, TensorReader& b, const std::vector<uint64_t>& at) {
  Fit fit;
  double of_a = 0;
  double of_b = 0;
  for (const uint64_t index : at) {
    Number x;
    Number y;
    SP_TRY(a.Read(index, 1, reinterpret_cast<char*>(&x)));
    SP_TRY(b.Read(index, 1, reinterpret_cast<char*>(&y)));
    const double part = PartOfBound(x, y);
    if (part <= 1) ++fit.within;
    if (AreSame(x, y)) ++fit.same;
    const double counted = std::min(part, kPartMax);
    fit.energy += counted * counted;
    fit.errors += (x.value - y.value) * (x.value - y.value);
    of_a += x.value * x.value;
    of_b += y.value * y.value;
  }
  fit.values = std::min(of_a, of_b);
  return fit;
}

}  // namespace shardproof::compare
