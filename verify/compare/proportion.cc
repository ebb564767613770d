#include "verify/compare/proportion.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace shardproof::compare {
namespace {

constexpr uint64_t kStretch = 16;  // elements of a row: the fewest that formats give one scale
constexpr size_t kFewestStretches = 16;  // stretches: fewer may be in proportion by chance
constexpr double kAlike = 0.95;          // the square of their correlation
constexpr double kNearOne = 1.25;        // a factor up to this, or its inverse, may be a fit's
constexpr double kMostStretches = 0.6;   // of the stretches

struct Proportion {
  double factor = 1;  ///< B's numbers are A's times this
  bool is_wrong = false;
};

Result<Proportion> ProportionAt(TensorReader& a, TensorReader& b, uint64_t first) {
  std::array<Number, kStretch> x;
  std::array<Number, kStretch> y;
  SP_TRY(a.Read(first, kStretch, reinterpret_cast<char*>(x.data())));
  SP_TRY(b.Read(first, kStretch, reinterpret_cast<char*>(y.data())));
  double xx = 0;
  double yy = 0;
  double xy = 0;
  for (uint64_t i = 0; i < kStretch; ++i) {
    xx += x[i].value * x[i].value;
    yy += y[i].value * y[i].value;
    xy += x[i].value * y[i].value;
  }
  Proportion found{.factor = xy / xx};
  // What is not finite, or zero, is in no proportion.
  const bool is_alike = xy > 0 && xy * xy >= kAlike * xx * yy;
  found.is_wrong = is_alike && (found.factor > kNearOne || found.factor < 1 / kNearOne);
  return found;
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
    SP_ASSIGN(const Proportion found, ProportionAt(a, b, stretch));
    if (!found.is_wrong) continue;
    ++wrong;
    if (first.empty()) {
      first = fmt::format("elements {} to {} are {:.3g} times A's", stretch, stretch + kStretch - 1,
                          found.factor);
    }
  }
  if (static_cast<double>(wrong) < kMostStretches * static_cast<double>(stretches.size()))
    return std::string();
  return fmt::format(
      "B's numbers are A's times other factors from block to block: the codes fit and the scales "
      "do not; {}",
      first);
}

}  // namespace shardproof::compare
