// Why B is not what a map computes: a scale or an adapter applied in another way.
#include <cmath>

#include "verify/compare/bounds.h"
#include "verify/compare/diagnose.h"
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
