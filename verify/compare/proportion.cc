#include "verify/compare/proportion.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace shardproof::compare {
namespace {

constexpr uint64_t kStretch = 16;  // elements of a row: the fewest that formats give one scale
constexpr size_t kFewestStretches = 16;  // stretches: fewer may be in proportion by chance
constexpr uint64_t kLarger = 8;          // of a stretch's numbers: the larger ones
constexpr int64_t kLargerAlike = 6;      // of these
constexpr double kNearOne = 1.25;        // a factor up to this, or its inverse, may be a fit's
constexpr double kMostStretches = 0.6;   // of the stretches

/// What most of the larger numbers of B are times A's; 1 if they are in no proportion. A fit may
/// cut off the largest, and rounding changes the small ones.
Result<double> FactorAt(TensorReader& a, TensorReader& b, uint64_t first) {
  std::array<Number, kStretch> x;
  std::array<Number, kStretch> y;
  SP_TRY(a.Read(first, kStretch, reinterpret_cast<char*>(x.data())));
  SP_TRY(b.Read(first, kStretch, reinterpret_cast<char*>(y.data())));
  std::array<std::pair<double, double>, kStretch> numbers;  // A's magnitude, B's part of it
  for (uint64_t i = 0; i < kStretch; ++i) {
    const double part = x[i].value == 0 ? 0 : y[i].value / x[i].value;
    if (!std::isfinite(part)) return 1.0;
    numbers[i] = {std::abs(x[i].value), part};
  }
  std::sort(numbers.begin(), numbers.end());
  std::array<double, kLarger> parts;
  for (uint64_t i = 0; i < kLarger; ++i) parts[i] = numbers[kStretch - 1 - i].second;
  std::sort(parts.begin(), parts.end());
  const double factor = parts[kLarger / 2];
  const auto near = std::count_if(parts.begin(), parts.end(), [&](double part) {
    return part > factor / kNearOne && part < factor * kNearOne;
  });
  return factor > 0 && near >= kLargerAlike ? factor : 1.0;
}

}  // namespace

Result<std::string> DiagnoseProportion(TensorReader& a, TensorReader& b,
                                       const std::vector<uint64_t>& at) {
  const uint64_t columns = b.shape().empty() ? 0 : static_cast<uint64_t>(b.shape().back());
  if (columns % kStretch != 0) return std::string();
  std::vector<uint64_t> stretches;
  for (const uint64_t index : at) stretches.push_back(index / kStretch * kStretch);
  std::sort(stretches.begin(), stretches.end());
  stretches.erase(std::unique(stretches.begin(), stretches.end()), stretches.end());
  if (stretches.size() < kFewestStretches) return std::string();
  size_t wrong = 0;
  std::string first;
  for (const uint64_t stretch : stretches) {
    SP_ASSIGN(const double factor, FactorAt(a, b, stretch));
    if (factor <= kNearOne && factor >= 1 / kNearOne) continue;
    ++wrong;
    if (first.empty()) {
      first = fmt::format("elements {} to {} are {:.3g} times A's", stretch, stretch + kStretch - 1,
                          factor);
    }
  }
  if (static_cast<double>(wrong) < kMostStretches * static_cast<double>(stretches.size()))
    return std::string();
  return fmt::format(
      "B's numbers are A's times other factors from block to block: the codes fit and the scales "
      "do not, or channels were scaled before, as AWQ does; {}",
      first);
}

}  // namespace shardproof::compare
