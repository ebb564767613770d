#include "verify/compare/misreadings.h"

#include <fmt/format.h>

#include <algorithm>

#include "verify/compare/bounds.h"
#include "verify/compare/diagnose.h"
#include "verify/compare/proportion.h"
#include "verify/maps/numbers.h"
#include "verify/oracle/digest_scalar.h"
#include "verify/oracle/quote.h"

namespace shardproof::compare {
namespace {

using maps::View;
using quantised::Misreading;

constexpr size_t kFewest = 8;  // elements: fewer may fit by chance
constexpr size_t kTriedFirst = kFewest;
constexpr size_t kFewestRearranged = 32;  // of many orders, one may fit a few by chance
constexpr double kMostWithin = 0.9;
constexpr double kEnergyLess = 8;
constexpr double kErrorsLess = 0.5;
constexpr uint64_t kEverywhere = 128;  // elements throughout the tensor
constexpr int64_t kRowsMax = 1 << 14;
constexpr uint64_t kRowElements = 64;
constexpr size_t kRowsLookedAt = 8;
constexpr size_t kTensorsMax = 4096;

/// What a change to one side comes to, at the elements that were wrong.
class Candidates {
 public:
  Candidates(const NumberPair& pair, TensorReader& a, TensorReader& b)
      : is_beyond_(pair.beyond > 0),
        at_(is_beyond_ ? pair.beyond_at.indices() : pair.unlike_at.indices()),
        a_(a),
        b_(b) {}

  bool AreEnough() const { return at_.size() >= kFewest; }
  const std::vector<uint64_t>& at() const { return at_; }

  Status Measure() {
    SP_ASSIGN(plain_, FitOf(a_, b_, at_));
    for (uint64_t i = 0; i < kEverywhere; ++i)
      everywhere_.push_back(oracle::Mix(i) % b_.elements());
    SP_ASSIGN(plain_everywhere_, FitOf(a_, b_, everywhere_));
    return Ok();
  }

  Status Try(Reader other, bool of_b, const std::string& words) {
    if (other == nullptr || other->shape() != b_.shape()) return Ok();
    const Reader numbers = maps::WithHalfSteps(std::move(other));
    // Most candidates are weights of something else, as a few elements show.
    const std::vector<uint64_t> few(at_.begin(), at_.begin() + kTriedFirst);
    SP_ASSIGN(const Fit first, FitOf(of_b ? a_ : *numbers, of_b ? *numbers : b_, few));
    if (is_beyond_ ? first.errors > first.values : first.same < few.size()) return Ok();
    SP_ASSIGN(const Fit fit, FitOf(of_b ? a_ : *numbers, of_b ? *numbers : b_, at_));
    const auto all = static_cast<double>(at_.size());
    // Scales that are far too large have a bound that anything is within.
    const bool is_near = fit.errors < kErrorsLess * fit.values;
    const bool is_within = static_cast<double>(fit.within) >= kMostWithin * all ||
                           fit.energy * kEnergyLess < plain_.energy;
    const bool explains = is_beyond_ ? is_near && is_within : fit.same == at_.size();
    if (!explains) return Ok();
    const bool better =
        words_.empty() || std::pair(best_.same, -best_.energy) < std::pair(fit.same, -fit.energy);
    if (!better) return Ok();
    // What is right must not become wrong: a shift of all codes also mends those that were cut off.
    SP_ASSIGN(const Fit whole, FitOf(of_b ? a_ : *numbers, of_b ? *numbers : b_, everywhere_));
    if (whole.within + kEverywhere / 10 < plain_everywhere_.within) return Ok();
    best_ = fit;
    words_ = words;
    return Ok();
  }

  const std::string& words() const { return words_; }

 private:
  bool is_beyond_;
  const std::vector<uint64_t>& at_;
  TensorReader& a_;
  TensorReader& b_;
  std::vector<uint64_t> everywhere_;
  Fit plain_;
  Fit plain_everywhere_;
  Fit best_;
  std::string words_;
};

/// The unit that a view is, where it is one and nothing else.
const quantised::Unit* UnitOf(const Checkpoint& checkpoint, const View& view) {
  if (view.kind != View::Kind::kStored || !checkpoint.Owns(*view.stored) ||
      view.shape != view.stored->shape)
    return nullptr;
  const quantised::Unit* unit = checkpoint.UnitOf(*view.stored);
  return unit != nullptr && unit->unknown.empty() ? unit : nullptr;
}

/// The parts of the unit, lying otherwise.
Status TryRearranged(const Checkpoint& checkpoint, const quantised::Unit& unit, bool of_b,
                     Candidates& candidates) {
  if (candidates.at().size() < kFewestRearranged) return Ok();
  for (const auto& [part, words] :
       {std::pair("scale", "scales"), {"codes", "codes"}, {"zero", "zero points"}}) {
    const formats::StoredTensor* stored = unit.Part(part);
    if (stored == nullptr || unit.scheme.dialect == Dialect::kGguf) continue;
    const auto width = static_cast<uint64_t>(oracle::FindDtype(stored->dtype)->bytes);
    for (const auto& each : quantised::RearrangementsOf(stored->shape, width)) {
      SP_TRY(candidates.Try(
          checkpoint.ReadRearranged(unit, part, each), of_b,
          fmt::format("B {} the {} {}", of_b ? "holds" : "was made from", words, each.words)));
    }
  }
  return Ok();
}

/// The parts of the unit, taken for something else; the scales of another unit of its checkpoint.
Status TryUnit(const Checkpoint& checkpoint, const quantised::Unit& unit, bool of_b,
               Candidates& candidates) {
  for (const quantised::NamedMisreading& each : quantised::Misreadings()) {
    SP_TRY(candidates.Try(checkpoint.ReadUnit(unit, each.misreading), of_b,
                          fmt::format("B: {}", of_b ? each.of_unit : each.of_numbers)));
  }
  SP_TRY(TryRearranged(checkpoint, unit, of_b, candidates));
  const formats::StoredTensor* scale = unit.Part("scale");
  if (scale == nullptr || !candidates.words().empty()) return Ok();
  size_t looked_at = 0;
  for (const auto& [name, other] : checkpoint.units()) {
    const formats::StoredTensor* others = other.Part("scale");
    const bool fits = name != unit.name && other.unknown.empty() && others != nullptr &&
                      others->shape == scale->shape && others->dtype == scale->dtype &&
                      other.shape == unit.shape;
    if (!fits) continue;
    if (++looked_at > kTensorsMax) break;
    quantised::Unit mixed = unit;
    mixed.parts["scale"] = *others;
    SP_TRY(candidates.Try(
        checkpoint.ReadUnit(mixed, Misreading::kNone), of_b,
        fmt::format("B: the scales are those of another tensor, {}", oracle::Quote(name))));
  }
  return Ok();
}

/// A's tensors of the same shape in its place.
Status TryTensors(const Inputs& inputs, const View& a, Candidates& candidates) {
  const formats::StoredTensor* own = a.kind == View::Kind::kStored ? a.stored : nullptr;
  size_t looked_at = 0;
  for (const formats::StoredTensor& tensor : inputs.a.tensors()) {
    const quantised::Unit* unit = inputs.a.UnitOf(tensor);
    const bool is_known = unit == nullptr || unit->unknown.empty();
    if (&tensor == own || tensor.shape != a.shape || !is_known) continue;
    if (++looked_at > kTensorsMax) break;
    const maps::ViewPtr view = maps::Stored(tensor);
    bool is_part = false;
    maps::ForEachStored(a, [&](const View& box) { is_part = is_part || box.stored == &tensor; });
    const std::string name = oracle::Quote(tensor.name);
    SP_TRY(candidates.Try(
        OpenNumbers(inputs, *view), false,
        is_part ? fmt::format("B has A's {} as it is: what the map does to it was left out", name)
                : "B has the weights of another tensor, A's " + name));
  }
  return Ok();
}

/// The row of A whose beginning is that of B's row; no value: none, or its own.
Result<std::optional<uint64_t>> RowLike(TensorReader& a, TensorReader& b, uint64_t row,
                                        uint64_t rows, uint64_t columns) {
  const uint64_t count = std::min(columns, kRowElements);
  std::vector<Number> seen(count);
  std::vector<Number> expected(count);
  SP_TRY(b.Read(row * columns, count, reinterpret_cast<char*>(seen.data())));
  // Zeros are like those of any row.
  if (std::all_of(seen.begin(), seen.end(), [](const Number& number) { return number.value == 0; }))
    return std::optional<uint64_t>();
  const auto fits = [&](uint64_t other) -> Result<bool> {
    SP_TRY(a.Read(other * columns, count, reinterpret_cast<char*>(expected.data())));
    size_t within = 0;
    for (size_t i = 0; i < count; ++i) within += PartOfBound(expected[i], seen[i]) <= 1;
    return static_cast<double>(within) >= kMostWithin * static_cast<double>(count);
  };
  SP_ASSIGN(const bool fits_own, fits(row));
  for (uint64_t other = 0; !fits_own && other < rows; ++other) {
    SP_ASSIGN(const bool fits_other, fits(other));
    if (fits_other) return {other};
  }
  return std::optional<uint64_t>();
}

/// Rows of the last two dims, where B has them in another order.
Result<std::string> RowsInAnotherOrder(TensorReader& a, TensorReader& b,
                                       const std::vector<uint64_t>& at) {
  if (b.shape().size() != 2 || b.shape()[0] > kRowsMax || b.shape()[1] < 8) return std::string();
  const auto rows = static_cast<uint64_t>(b.shape()[0]);
  const auto columns = static_cast<uint64_t>(b.shape()[1]);
  std::vector<uint64_t> wrong;
  for (const uint64_t index : at) {
    if (wrong.empty() || wrong.back() != index / columns) wrong.push_back(index / columns);
  }
  const size_t step = std::max<size_t>(1, wrong.size() / kRowsLookedAt);
  size_t looked_at = 0;
  std::string first;
  size_t found = 0;
  for (size_t i = 0; i < wrong.size(); i += step, ++looked_at) {
    SP_ASSIGN(const auto like, RowLike(a, b, wrong[i], rows, columns));
    if (!like) continue;
    ++found;
    if (first.empty()) first = fmt::format("row {} of B is row {} of A", wrong[i], *like);
  }
  if (found * 4 < looked_at * 3 || found == 0) return std::string();
  return "rows are permuted: " + first;
}

}  // namespace

Result<std::string> Explain(const Inputs& inputs, const maps::Held& held, const NumberPair& pair) {
  const Reader a = OpenNumbers(inputs, *held.a);
  const Reader b = OpenNumbers(inputs, *held.b);
  Candidates candidates(pair, *a, *b);
  if (!candidates.AreEnough()) return std::string();
  SP_TRY(candidates.Measure());
  if (const quantised::Unit* unit = UnitOf(inputs.b, *held.b))
    SP_TRY(TryUnit(inputs.b, *unit, true, candidates));
  if (const quantised::Unit* unit = UnitOf(inputs.a, *held.a))
    SP_TRY(TryUnit(inputs.a, *unit, false, candidates));
  if (!candidates.words().empty() || pair.beyond == 0) return candidates.words();
  SP_TRY(TryTensors(inputs, *held.a, candidates));
  if (!candidates.words().empty()) return candidates.words();
  SP_ASSIGN(const std::string order, DiagnoseOrder(held, [&](const View& view) -> Result<bool> {
              SP_TRY(candidates.Try(OpenNumbers(inputs, view), false, "it is B"));
              return !candidates.words().empty();
            }));
  if (!order.empty()) return order;
  SP_ASSIGN(const std::string rows, RowsInAnotherOrder(*a, *b, candidates.at()));
  if (!rows.empty()) return rows;
  SP_ASSIGN(const std::string one_factor, DiagnoseNumbers(*a, *b));
  if (!one_factor.empty()) return one_factor;
  return DiagnoseProportion(*a, *b, candidates.at());
}

}  // namespace shardproof::compare
