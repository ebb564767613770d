// Why B is not what a map computes: a scale or an adapter applied in another way.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "verify/compare/bounds.h"
#include "verify/compare/diagnose.h"
#include "verify/maps/numbers.h"
#include "verify/oracle/quote.h"

namespace shardproof::compare {
namespace {

using maps::Held;
using maps::View;

constexpr size_t kMergesMax = 64;      // of other modules that a wrong one is held against
constexpr uint64_t kBeginning = 8192;  // elements, in which most of what B is not differs

/// What B may be instead of what the map computes, and how that is said.
struct Alternative {
  Result<maps::ViewPtr> view;
  std::string explanation;
};

/// By what factor B's beginning has the adapter; nothing if it has none of it.
Result<std::optional<double>> FactorLike(const Inputs& inputs, const Held& held) {
  const View& a = *held.a;
  const uint64_t count = std::min(kBeginning, a.Elements());
  std::vector<maps::Number> merged(count), weight(count), seen(count);
  for (const auto& [view, out] :
       {std::pair(&a, &merged), {a.parts[0].get(), &weight}, {held.b.get(), &seen}}) {
    const Reader numbers = maps::ToNumbers(inputs.Open(*view, UnitOf(*held.b->dtype)), false, 0);
    if (numbers->elements() < count) return std::optional<double>();
    SP_TRY(numbers->Read(0, count, reinterpret_cast<char*>(out->data())));
  }
  double squares = 0, products = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const double delta = merged[i].value - weight[i].value;
    squares += delta * delta;
    products += delta * (seen[i].value - weight[i].value);
  }
  const double factor = a.number * products / squares;
  return std::isfinite(factor) ? std::optional(factor) : std::nullopt;
}

/// A merge gone wrong: by another factor, the other way round, or of another module's adapter.
void AddMerges(const Held& held, const std::vector<Held>& all,
               std::vector<Alternative>& alternatives) {
  const View& a = *held.a;
  const auto rank = static_cast<double>(a.parts[1]->shape[0]);
  const auto with = [&](double factor, const char* explanation) {
    alternatives.push_back({maps::Merged(a.parts[0], a.parts[1], a.parts[2], factor), explanation});
  };
  alternatives.push_back({a.parts[0], "B equals A: the adapter was not merged"});
  with(2 * a.number, "B has the adapter merged twice");
  with(-a.number, "B has the adapter subtracted");
  with(1, "B has the adapter merged without its factor");
  with(a.number * rank, "B has the adapter merged by lora_alpha and not by lora_alpha / r");
  with(1 / a.number, "B has the adapter merged by the inverse of its factor");
  with(a.number * std::sqrt(rank), "B has the adapter merged by lora_alpha / sqrt(r)");
  with(a.number / std::sqrt(rank), "B has the adapter merged by lora_alpha / r");
  const auto right = maps::Permute(a.parts[1], {1, 0}), left = maps::Permute(a.parts[2], {1, 0});
  if (right.ok() && left.ok()) {
    alternatives.push_back({maps::Merged(a.parts[0], left.value(), right.value(), a.number),
                            "B has the adapter's product transposed"});
  }
  size_t tried = 0;
  for (const Held& other : all) {
    const View& its = *other.a;
    if (&other == &held || its.kind != View::Kind::kMerged || its.shape != a.shape) continue;
    if (++tried > kMergesMax) break;
    const std::string name = oracle::Quote(NameOf(*other.b));
    alternatives.push_back({maps::Merged(a.parts[0], its.parts[1], its.parts[2], its.number),
                            "B has the adapter of another module merged, that of " + name});
    alternatives.push_back({other.a, "B has the values of " + name});
  }
}

}  // namespace

Result<std::string> DiagnoseStep(const Inputs& inputs, const Held& held,
                                 const std::vector<Held>& all) {
  const View& a = *held.a;
  std::vector<Alternative> alternatives;
  if (a.kind == View::Kind::kMerged) {
    AddMerges(held, all, alternatives);
    SP_ASSIGN(const auto like, FactorLike(inputs, held));
    const auto rank = static_cast<double>(a.parts[1]->shape[0]);
    for (const double by : {rank, std::sqrt(rank)}) {  // lora_alpha is a whole number
      const double factor = std::round(like.value_or(0) * by) / by;
      alternatives.push_back({maps::Merged(a.parts[0], a.parts[1], a.parts[2], factor),
                              fmt::format("B has the adapter merged by a factor of {:.6g}, where "
                                          "its config gives {:.6g}",
                                          factor, a.number)});
    }
  } else if (a.kind == View::Kind::kScaled) {
    alternatives.push_back({a.parts[0], "B is not scaled"});
    const auto inverse = maps::Arithmetic(maps::Constant(1), '/', a.parts[1]);
    if (inverse.ok()) {
      alternatives.push_back({maps::Scaled(a.parts[0], inverse.value(), a.block),
                              "B is divided by the scales and not multiplied: they are inverted"});
    }
  }
  for (const Alternative& other : alternatives) {
    if (!other.view.ok()) continue;
    const Reader expected = inputs.Open(*other.view.value(), UnitOf(*held.b->dtype));
    const Reader seen = inputs.Open(*held.b);
    SP_ASSIGN(const auto begin, CountBeyondBound(*expected, *seen, kBeginning));
    if (begin.difference.differing > 0) continue;
    SP_ASSIGN(const auto found, CountBeyondBound(*expected, *seen));
    if (found.difference.differing == 0) return other.explanation;
  }
  return std::string();
}

}  // namespace shardproof::compare
