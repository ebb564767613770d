#include "verify/compare/dequantised.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "verify/compare/bounds.h"
#include "verify/compare/misreadings.h"
#include "verify/compare/number_pair.h"
#include "verify/oracle/quote.h"

namespace shardproof::compare {
namespace {

using maps::View;

/// Calibration moves many weights a little; a few that are far off are a mistake.
constexpr double kFewOf = 1000;
constexpr double kFarBounds = 3;

const quantised::Unit* UnitIn(const Inputs& inputs, const formats::StoredTensor& tensor) {
  return inputs.a.Owns(tensor)   ? inputs.a.UnitOf(tensor)
         : inputs.b.Owns(tensor) ? inputs.b.UnitOf(tensor)
                                 : nullptr;
}

bool MayBeFitted(const Inputs& inputs, const View& view) {
  bool may_be = false;
  maps::ForEachStored(view, [&](const View& box) {
    const quantised::Unit* unit = UnitIn(inputs, *box.stored);
    may_be = may_be || (unit != nullptr && unit->may_be_fitted);
  });
  return may_be;
}

bool HasUnit(const Inputs& inputs, const View& view) {
  bool has = false;
  maps::ForEachStored(
      view, [&](const View& box) { has = has || UnitIn(inputs, *box.stored) != nullptr; });
  return has;
}

std::string Text(const Number& number) {
  return fmt::format("{:.9g} (within {:.3g})", number.value, number.bound);
}

}  // namespace

bool AreNumbers(const Inputs& inputs, const maps::Held& held) {
  if (HasUnit(inputs, *held.a) || HasUnit(inputs, *held.b)) return true;
  const auto is_float = [](const View& view) {
    return view.dtype->kind == oracle::NumberKind::kFloat;
  };
  return held.a->dtype != held.b->dtype && is_float(*held.a) && is_float(*held.b);
}

std::string UnknownIn(const Inputs& inputs, const View& view) {
  std::string unknown;
  maps::ForEachStored(view, [&](const View& box) {
    const quantised::Unit* unit = UnitIn(inputs, *box.stored);
    if (unit == nullptr || unit->unknown.empty() || !unknown.empty()) return;
    unknown = fmt::format("{}'s {} ({}): {}", inputs.a.Owns(*box.stored) ? "A" : "B",
                          oracle::Quote(unit->name), unit->kind, unit->unknown);
  });
  return unknown;
}

std::string KindsIn(const Inputs& inputs, const View& view) {
  std::vector<std::string> kinds;
  maps::ForEachStored(view, [&](const View& box) {
    const quantised::Unit* unit = UnitIn(inputs, *box.stored);
    const std::string kind = unit == nullptr ? box.stored->dtype : unit->kind;
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
  });
  return fmt::format("{}", fmt::join(kinds, " and "));
}

Result<NumbersCompared> CompareNumbers(const Inputs& inputs, const maps::Held& held) {
  SP_ASSIGN(const NumberPair pair,
            Hold(*OpenNumbers(inputs, *held.a), *OpenNumbers(inputs, *held.b)));
  NumbersCompared out{.beyond = pair.beyond,
                      .worst = pair.worst,
                      .worst_index = pair.worst_index,
                      .expected = Text(pair.worst_a),
                      .seen = Text(pair.worst_b)};
  const bool both = HasUnit(inputs, *held.a) && HasUnit(inputs, *held.b);
  if (pair.beyond == 0 && !(both && pair.unlike > 0)) return out;
  SP_ASSIGN(out.explanation, Explain(inputs, held, pair));
  if (pair.beyond == 0 || !out.explanation.empty()) return out;
  const bool is_judged = !MayBeFitted(inputs, *held.a) && !MayBeFitted(inputs, *held.b);
  const bool are_few =
      static_cast<double>(pair.beyond) * kFewOf <= static_cast<double>(pair.elements) &&
      pair.worst > kFarBounds;
  if (is_judged || pair.is_far || are_few || std::isinf(pair.worst)) return out;
  out.unjudged = fmt::format(
      "{} of {} elements are beyond what rounding to the nearest code makes, up to {:.2g} times, "
      "which calibration (GPTQ, AWQ, a search for scales) may cause",
      pair.beyond, pair.elements, pair.worst);
  return out;
}

}  // namespace shardproof::compare
