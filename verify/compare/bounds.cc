#include "verify/compare/bounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "verify/maps/numbers.h"
#include "verify/maps/view.h"
#include "verify/verdict/values.h"

namespace shardproof::compare {
namespace {

using maps::kNumber;
using maps::Number;
using oracle::DtypeInfo;
using oracle::NumberKind;

constexpr uint64_t kNumbersHeld = 8192;
constexpr double kF32Unit = 0x1p-24;
// Of the arithmetic here, which is in doubles.
constexpr double kOwnUnit = 0x1p-50;

/// Half the distance between two neighbours in the dtype, at this value.
double HalfStep(const DtypeInfo& dtype, double value) {
  if (dtype.kind != NumberKind::kFloat || value == 0 || !std::isfinite(value)) return 0;
  const int least = 1 - dtype.format.Bias();
  const int exponent = std::max(std::ilogb(value), least);
  const double half = std::ldexp(1.0, exponent - dtype.format.mantissa_bits - 1);
  // Narrower ones are rounded from F32.
  return dtype.format.mantissa_bits < 23 ? half + std::abs(value) * kF32Unit : half;
}

/// The error as a part of what is allowed; 0 if the two are the same.
double PartOfWiderBound(const Number& a, const Number& b, double half_step) {
  if (std::isnan(a.value) || std::isnan(b.value)) {
    return std::isnan(a.value) && std::isnan(b.value) ? 0 : HUGE_VAL;
  }
  const double error = std::abs(a.value - b.value);
  if (a.value == b.value || error == 0) return 0;
  const double allowed = a.bound + b.bound + half_step + std::abs(a.value) * kOwnUnit;
  return allowed > 0 ? error / allowed : HUGE_VAL;
}

/// Whether a value beyond the dtype's range became what such a value becomes.
bool RoundsTo(const DtypeInfo& dtype, double value, double stored) {
  return dtype.kind == NumberKind::kFloat &&
         oracle::DecodeFloat(dtype.format, oracle::EncodeFloat(dtype.format, value)) == stored;
}

/// Calls visit(index, a, b) for the first `count` elements.
template <typename Visit>
Status Walk(TensorReader& a, TensorReader& b, uint64_t count, Visit visit) {
  return WalkNumbers(a, b, 0, count,
                     [&](uint64_t start, const Number* x, const Number* y, uint64_t step) {
                       for (uint64_t i = 0; i < step; ++i) visit(start + i, x[i], y[i]);
                     });
}

/// A reader as numbers, without taking it.
class Borrowed : public TensorReader {
 public:
  explicit Borrowed(TensorReader& base) : TensorReader(base.dtype(), base.shape()), base_(base) {}
  Status Read(uint64_t start, uint64_t count, char* out) override {
    return base_.Read(start, count, out);
  }

 private:
  TensorReader& base_;
};

maps::Reader Numbers(TensorReader& base) {
  return maps::ToNumbers(std::make_unique<Borrowed>(base), false, 0);
}

/// The dtype that the last step was rounded to.
const DtypeInfo& Rounded(const TensorReader& a, const TensorReader& b) {
  if (&b.dtype() != &kNumber) return b.dtype();
  return &a.dtype() != &kNumber ? a.dtype() : *oracle::FindDtype("F32");
}

std::string Text(const Number& number, const DtypeInfo& dtype, bool computed, double half_step) {
  if (dtype.kind != NumberKind::kFloat) return fmt::format("{}", number.value);
  if (computed) {
    return fmt::format("{:.9g} within {:.2g}", number.value, number.bound + half_step);
  }
  std::string bytes(static_cast<size_t>(dtype.bytes), '\0');
  oracle::StoreBits(oracle::EncodeFloat(dtype.format, number.value), dtype.bytes, bytes.data());
  return ElementText(dtype.name, bytes);
}

}  // namespace

Status WalkNumbers(TensorReader& a, TensorReader& b, uint64_t start, uint64_t count,
                   const VisitNumbers& visit) {
  std::vector<Number> from_a(std::min(kNumbersHeld, count));
  std::vector<Number> from_b(from_a.size());
  for (uint64_t end = start + count; start < end; start += kNumbersHeld) {
    const uint64_t step = std::min(kNumbersHeld, end - start);
    SP_TRY(a.Read(start, step, reinterpret_cast<char*>(from_a.data())));
    SP_TRY(b.Read(start, step, reinterpret_cast<char*>(from_b.data())));
    visit(start, from_a.data(), from_b.data(), step);
  }
  return Ok();
}

double UnitOf(const DtypeInfo& dtype) {
  const bool wide = dtype.kind == NumberKind::kFloat && dtype.bytes >= 2;
  return wide ? std::ldexp(1.0, -dtype.format.mantissa_bits - 1) : kF32Unit;
}

Result<BoundedDifference> CountBeyondBound(TensorReader& a, TensorReader& b, uint64_t count) {
  BoundedDifference found;
  const DtypeInfo& dtype = Rounded(a, b);
  const maps::Reader from_a = Numbers(a);
  const maps::Reader from_b = Numbers(b);
  const auto visit = [&](uint64_t index, const Number& x, const Number& y) {
    if (x.value == y.value) return;
    // Each side that computes was rounded once at its end, at the value that it comes to.
    const double half = (&a.dtype() == &kNumber ? HalfStep(dtype, x.value) : 0) +
                        (&b.dtype() == &kNumber ? HalfStep(dtype, y.value) : 0);
    const double part = PartOfWiderBound(x, y, half);
    if (part <= 1) {
      found.worst = std::max(found.worst, part);
      return;
    }
    if (&a.dtype() == &kNumber && RoundsTo(dtype, x.value, y.value)) return;
    if (&b.dtype() == &kNumber && RoundsTo(dtype, y.value, x.value)) return;
    if (found.difference.differing++ > 0) return;
    found.difference.first = index;
    found.difference.expected = Text(x, dtype, &a.dtype() == &kNumber, half);
    found.difference.seen = Text(y, dtype, &b.dtype() == &kNumber, half);
  };
  SP_TRY(Walk(*from_a, *from_b, std::min(count, b.elements()), visit));
  return found;
}

Result<std::string> DiagnoseNumbers(TensorReader& a, TensorReader& b) {
  constexpr uint64_t kLookedAt = 512;
  constexpr double kNear = 0x1p-6;
  bool inverted = true;
  bool scaled = true;
  bool varied = false;
  double factor = 0;
  double first = 0;
  const auto near = [](double x, double y) { return std::abs(x - y) <= kNear * std::abs(y); };
  const auto visit = [&](uint64_t index, const Number& x, const Number& y) {
    if (x.value == 0 || y.value == 0) return;
    if (factor == 0) factor = y.value / x.value;
    if (index == 0) first = x.value;
    varied = varied || x.value != first;
    inverted = inverted && near(y.value * x.value, 1);
    scaled = scaled && near(y.value / x.value, factor);
  };
  SP_TRY(Walk(*Numbers(a), *Numbers(b), std::min(kLookedAt, b.elements()), visit));
  if (factor == 0) return std::string();
  if (inverted && !near(factor, 1)) {
    return std::string("B holds the reciprocals: the value was not inverted");
  }
  if (!scaled || near(factor, 1) || !varied) return std::string();
  return fmt::format("B's values are {:.4g} times what is expected", factor);
}

}  // namespace shardproof::compare
