#include "verify/compare/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <tuple>

#include "src/text/amounts.h"
#include "verify/compare/adapter.h"
#include "verify/compare/bounds.h"
#include "verify/compare/dequantised.h"
#include "verify/compare/diagnose.h"
#include "verify/compare/streams.h"
#include "verify/compare/suggest.h"
#include "verify/formats/beside.h"
#include "verify/maps/model_config.h"
#include "verify/oracle/listing.h"
#include "verify/oracle/quote.h"
#include "verify/verdict/values.h"

namespace shardproof {
namespace {

using compare::Checkpoint;
using compare::Reader;
using maps::Held;
using maps::View;
using oracle::DtypeInfo;
using oracle::NumberKind;

/// One run of Compare: what is compared.
struct Inputs : compare::Inputs {
  const DtypeInfo* cast = nullptr;
  bool dequantised = false;
};

/// One thread's part of it: the result as it grows.
struct Comparison {
  const Inputs& inputs;
  const std::vector<Held>& pairs;
  CompareResult result = {};
  using Tensors = std::set<const formats::StoredTensor*>;
  Tensors compared = {};  ///< of B
  Tensors cast = {};      ///< of these, after the cast
  Tensors computed = {};  ///< of these, within a bound

  static void Add(const View& b, Tensors& tensors) {
    maps::ForEachStored(b, [&](const View& box) { tensors.insert(box.stored); });
  }
};

Result<const DtypeInfo*> CastTarget(const std::string& name) {
  if (name.empty()) return nullptr;
  const DtypeInfo* dtype = oracle::FindDtype(name);
  if (dtype != nullptr && dtype->kind == NumberKind::kFloat) return dtype;
  return BadInput(fmt::format("cast: expected one of {}, found {}", oracle::KnownFloatDtypes(),
                              oracle::Quote(name)));
}

TensorDifference Describe(const Held& held) {
  TensorDifference difference;
  difference.tensor = NameOf(*held.b);
  if (held.source != difference.tensor) difference.source = held.source;
  difference.dtype = held.b->dtype->name;
  difference.shape = held.b->shape;
  difference.elements = held.b->Elements();
  return difference;
}

bool IsCast(const Inputs& inputs, const Held& held) {
  const NumberKind kind = held.a->dtype->kind;
  return inputs.cast != nullptr && held.b->dtype == inputs.cast &&
         (kind == NumberKind::kFloat || kind == NumberKind::kScale);
}

/// A difference of shape or dtype: said as such, values are not held against each other.
Result<bool> FoundTagDifference(Comparison& run, const Held& held) {
  const View& a = *held.a;
  const View& b = *held.b;
  TensorDifference difference = Describe(held);
  if (a.shape != b.shape) {
    difference.kind = "shape";
    difference.expected = maps::ShapeText(a.shape);
    difference.seen = maps::ShapeText(b.shape);
    SP_ASSIGN(difference.explanation, compare::DiagnoseShape(run.inputs, held.a, held.b));
  } else if (a.dtype != b.dtype && !a.Computes() && !b.Computes() && !IsCast(run.inputs, held)) {
    difference.kind = "dtype";
    difference.expected = a.dtype->name;
    difference.seen = b.dtype->name;
    const bool castable =
        (a.dtype->kind == NumberKind::kFloat || a.dtype->kind == NumberKind::kScale) &&
        b.dtype->kind == NumberKind::kFloat;
    if (castable) {
      difference.explanation =
          fmt::format("with --cast {} the values can be compared", difference.seen);
    }
  } else {
    return false;
  }
  run.result.differences.push_back(std::move(difference));
  return true;
}

/// Says where the first element that differs lies in the tensor as it is stored.
void Locate(const Held& held, uint64_t first, TensorDifference& difference) {
  const maps::Place place = maps::PlaceOf(*held.b, first);
  difference.index = first;
  if (place.tensor != nullptr) {
    difference.tensor = place.tensor->name;
    difference.shape = place.tensor->shape;
    difference.index = place.element;
  }
  difference.coordinates = CoordinatesOf(*difference.index, difference.shape);
}

Status AddValueDifference(Comparison& run, const Held& held, compare::TensorReader& a,
                          compare::TensorReader& b, const compare::Difference& found) {
  TensorDifference difference = Describe(held);
  difference.kind = "differs";
  difference.differing = found.differing;
  Locate(held, *found.first, difference);
  difference.expected = ElementText(b.dtype().name, found.expected);
  difference.seen = ElementText(b.dtype().name, found.seen);
  const std::string own = held.a->kind == View::Kind::kStored ? held.a->stored->name : "";
  SP_ASSIGN(const std::string other,
            compare::FindSameValues(run.inputs, run.inputs.a, *held.b, own));
  if (!other.empty()) {
    difference.explanation =
        other == NameOf(*held.a)
            ? fmt::format("B has A's {} as it is: what the map does to it was left out",
                          oracle::Quote(other))
            : fmt::format("equals another tensor: A's {}", oracle::Quote(other));
  } else {
    if (!held.b->Computes()) {
      const auto is_b = [&](const View& view) {
        Reader ordered = run.inputs.Open(view);
        if (view.dtype != held.b->dtype) ordered = Cast(std::move(ordered), *held.b->dtype);
        return compare::AreEqual(*ordered, b);
      };
      SP_ASSIGN(difference.explanation, compare::DiagnoseOrder(held, is_b));
    }
    if (difference.explanation.empty()) {
      SP_ASSIGN(difference.explanation, compare::DiagnoseMapped(run.inputs, held, run.pairs));
    }
    // Of zeros it matters more that they are zeros than where else the right ones are.
    SP_ASSIGN(const bool is_one_value, compare::BeginsWithOneValue(run.inputs, *held.b));
    if (difference.explanation.empty() && !held.a->Computes() && !is_one_value) {
      SP_ASSIGN(const std::string in_b,
                compare::FindSameValues(run.inputs, run.inputs.b, *held.a, NameOf(*held.b)));
      if (!in_b.empty())
        difference.explanation =
            fmt::format("A's is another tensor of B's: {}", oracle::Quote(in_b));
    }
    if (difference.explanation.empty()) {
      SP_ASSIGN(difference.explanation, compare::DiagnoseValues(a, b, *found.first));
    }
  }
  run.result.differences.push_back(std::move(difference));
  return Ok();
}

/// With a cast, a tensor that B keeps in A's own dtype may be as it was, or may have gone through
/// the cast and back.
Result<bool> EqualAfterRoundTrip(Comparison& run, const Held& held) {
  const bool applies = run.inputs.cast != nullptr && held.b->dtype != run.inputs.cast &&
                       held.b->dtype->kind == NumberKind::kFloat;
  if (!applies) return false;
  const Reader there_and_back =
      Cast(Cast(run.inputs.Open(*held.a), *run.inputs.cast), *held.a->dtype);
  const Reader b = run.inputs.Open(*held.b);
  SP_ASSIGN(const auto found, compare::CountDifferences(*there_and_back, *b, true));
  return found.differing == 0;
}

/// What a map computes on either side, against its bound.
Status CompareComputed(Comparison& run, const Held& held) {
  const double unit = compare::UnitOf(held.b->Computes() ? *held.a->dtype : *held.b->dtype);
  const Reader a = run.inputs.Open(*held.a, unit);
  const Reader b = run.inputs.Open(*held.b, unit);
  SP_ASSIGN(const compare::BoundedDifference found, compare::CountBeyondBound(*a, *b));
  Comparison::Add(*held.b, run.compared);
  Comparison::Add(*held.b, run.computed);
  run.result.worst = std::max(run.result.worst, found.worst);
  run.result.elements += held.b->Elements();
  if (!held.b->Computes()) {
    run.result.bytes += held.b->Elements() * static_cast<uint64_t>(held.b->dtype->bytes);
  }
  if (found.difference.differing == 0) return Ok();
  TensorDifference difference = Describe(held);
  difference.kind = "differs";
  difference.differing = found.difference.differing;
  Locate(held, *found.difference.first, difference);
  difference.expected = found.difference.expected;
  difference.seen = found.difference.seen;
  SP_ASSIGN(difference.explanation, compare::DiagnoseStep(run.inputs, held, run.pairs));
  if (difference.explanation.empty()) {
    SP_ASSIGN(difference.explanation, compare::DiagnoseNumbers(*a, *b));
  }
  run.result.differences.push_back(std::move(difference));
  return Ok();
}

/// Numbers of quantised weights, against the bound of their formats.
Status CompareDequantised(Comparison& run, const Held& held) {
  SP_ASSIGN(const compare::NumbersCompared found, compare::CompareNumbers(run.inputs, held));
  Comparison::Add(*held.b, run.compared);
  Comparison::Add(*held.b, run.computed);
  CompareResult& result = run.result;
  result.worst = std::max(result.worst, found.worst);
  result.elements += held.b->Elements();
  const std::string name = NameOf(*held.b);
  result.units.push_back({name, compare::KindsIn(run.inputs, *held.a),
                          compare::KindsIn(run.inputs, *held.b), found.worst});
  if (!found.unjudged.empty())
    result.unjudged.push_back(fmt::format("{}: {}", oracle::Quote(name), found.unjudged));
  if (!found.IsWrong()) return Ok();
  TensorDifference difference = Describe(held);
  difference.kind = "differs";
  difference.dtype = result.units.back().b;
  difference.differing = found.beyond;
  difference.of_bound = found.worst;
  Locate(held, found.worst_index, difference);
  difference.expected = found.expected;
  difference.seen = found.seen;
  difference.explanation = found.explanation;
  result.differences.push_back(std::move(difference));
  return Ok();
}

/// Of a stretch that is worth a thread.
constexpr uint64_t kStretchBytesMin = 1u << 20;

uint64_t BytesOf(const View& view) {
  return view.Elements() * static_cast<uint64_t>(view.dtype->bytes);
}

Reader OpenExpected(const Comparison& run, const Held& held) {
  Reader a = run.inputs.Open(*held.a);
  return held.a->dtype == held.b->dtype ? std::move(a) : Cast(std::move(a), *held.b->dtype);
}

/// By the threads that have no pair of their own, too.
Result<compare::Difference> CountHeld(const Comparison& run, const Held& held, bool nan_equal) {
  const uint64_t idle = std::thread::hardware_concurrency() / run.pairs.size();
  const uint64_t most = BytesOf(*held.b) / kStretchBytesMin;
  const auto open = [&] { return std::pair(OpenExpected(run, held), run.inputs.Open(*held.b)); };
  return compare::CountDifferences(open, held.b->Elements(),
                                   std::max<uint64_t>(std::min(idle, most), 1), nan_equal);
}

Status CompareHeld(Comparison& run, const Held& held) {
  if (run.inputs.dequantised) {
    std::string unknown = compare::UnknownIn(run.inputs, *held.a);
    if (unknown.empty()) unknown = compare::UnknownIn(run.inputs, *held.b);
    if (!unknown.empty()) {
      run.result.unjudged.push_back(unknown);
      return Ok();
    }
    if (held.a->shape == held.b->shape && compare::AreNumbers(run.inputs, held))
      return CompareDequantised(run, held);
  }
  SP_ASSIGN(const bool tag_differs, FoundTagDifference(run, held));
  if (tag_differs) return Ok();
  if (held.a->Computes() || held.b->Computes()) return CompareComputed(run, held);
  const bool casts = held.a->dtype != held.b->dtype;
  // A cast of the map's has no defined payload of NaN, as one of the command's.
  const bool nan_equal = casts || held.a->kind == View::Kind::kCast;
  SP_ASSIGN(const compare::Difference found, CountHeld(run, held, nan_equal));
  bool cast_used = casts;
  if (found.differing > 0 && !casts) {
    SP_ASSIGN(cast_used, EqualAfterRoundTrip(run, held));
  }
  const bool equal = found.differing == 0 || (cast_used && !casts);
  Comparison::Add(*held.b, run.compared);
  if (cast_used) Comparison::Add(*held.b, run.cast);
  run.result.elements += held.b->Elements();
  run.result.bytes += BytesOf(*held.b);
  if (equal) return Ok();
  const Reader a = OpenExpected(run, held);
  const Reader b = run.inputs.Open(*held.b);
  return AddValueDifference(run, held, *a, *b, found);
}

/// All pairs, on as many threads as there are cores. \error of the first pair that has one.
Status ComparePairs(Comparison& run) {
  const std::vector<Held>& pairs = run.pairs;
  const size_t thread_count =
      std::clamp<size_t>(std::thread::hardware_concurrency(), 1, std::max<size_t>(pairs.size(), 1));
  std::vector<Comparison> parts(thread_count, Comparison{run.inputs, pairs});
  std::vector<Status> outcomes(pairs.size(), Ok());
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (Comparison& part : parts) {
    threads.emplace_back([&] {
      for (size_t i = next++; i < pairs.size(); i = next++)
        outcomes[i] = CompareHeld(part, pairs[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& outcome : outcomes) SP_TRY(outcome);
  CompareResult& whole = run.result;
  for (Comparison& part : parts) {
    std::move(part.result.differences.begin(), part.result.differences.end(),
              std::back_inserter(whole.differences));
    std::move(part.result.units.begin(), part.result.units.end(), std::back_inserter(whole.units));
    std::move(part.result.unjudged.begin(), part.result.unjudged.end(),
              std::back_inserter(whole.unjudged));
    run.compared.merge(part.compared);
    run.cast.merge(part.cast);
    run.computed.merge(part.computed);
    whole.worst = std::max(whole.worst, part.result.worst);
    whole.elements += part.result.elements;
    whole.bytes += part.result.bytes;
  }
  whole.tensors = run.compared.size();
  whole.cast_tensors = run.cast.size();
  whole.computed = run.computed.size();
  return Ok();
}

/// What is no tensor: options of an optimizer, step counts, extra state.
void CompareValues(Comparison& run, const maps::Map& map) {
  CompareResult& result = run.result;
  if (run.inputs.dequantised || !run.inputs.a.HoldsValues() || !run.inputs.b.HoldsValues()) {
    result.values_left = run.inputs.a.values().size() + run.inputs.b.values().size();
    return;
  }
  std::map<std::string, const std::string*> unpaired;
  for (const formats::StoredValue& value : run.inputs.b.values())
    unpaired.emplace(value.name, &value.text);
  for (const formats::StoredValue& value : run.inputs.a.values()) {
    const std::string name = maps::RenamedValue(map, value.name);
    const auto partner = unpaired.find(name);
    if (partner == unpaired.end()) {
      result.only_in_a.push_back(value.name);
      continue;
    }
    ++result.values;
    if (*partner->second != value.text) {
      result.differences.push_back({.kind = "value",
                                    .tensor = name,
                                    .expected = oracle::Printable(value.text),
                                    .seen = oracle::Printable(*partner->second)});
    }
    unpaired.erase(partner);
  }
  for (const auto& [name, text] : unpaired) result.only_in_b.push_back(name);
  std::sort(result.only_in_a.begin(), result.only_in_a.end());
  std::sort(result.only_in_b.begin(), result.only_in_b.end());
}

/// Elements that the map forgot are a difference: nothing says that they are right.
void AddGaps(const std::vector<maps::Gap>& gaps, CompareResult& result) {
  for (const maps::Gap& gap : gaps) {
    TensorDifference difference;
    difference.kind = "gap";
    difference.tensor = gap.tensor;
    difference.elements = gap.elements;
    difference.differing = gap.missing;
    difference.index = gap.first;
    difference.expected = "every element in a rule";
    difference.seen = fmt::format("{} of {}'s {} elements, the first is element {}", gap.missing,
                                  gap.side, gap.elements, gap.first);
    result.differences.push_back(std::move(difference));
  }
}

/// Worst first: anything that differs fails; a pass needs something that was compared.
void Conclude(CompareResult& result) {
  const auto by_worst = [](const auto& x, const auto& y) {
    return std::tuple(-x.of_bound, x.tensor) < std::tuple(-y.of_bound, y.tensor);
  };
  std::sort(result.differences.begin(), result.differences.end(), by_worst);
  std::sort(result.units.begin(), result.units.end(), by_worst);
  std::sort(result.unjudged.begin(), result.unjudged.end());
  if (!result.reason.empty()) return;
  if (!result.differences.empty() || !result.only_in_a.empty() || !result.only_in_b.empty()) {
    result.verdict = Verdict::kFail;
  } else if (!result.unjudged.empty()) {
    result.reason =
        Count(result.unjudged.size(), "weight") + " could not be judged: " + result.unjudged[0];
  } else if (result.tensors + result.values == 0) {
    result.reason = "nothing was compared: neither A nor B holds a tensor";
  } else if (result.elements + result.values == 0) {
    result.reason = "nothing was compared: every tensor is empty";
  } else {
    result.verdict = Verdict::kPass;
  }
}

/// What is said of two that are not dequantised, and of which one is quantised.
std::string HintOf(const CompareResult& result) {
  if (result.is_dequantised || result.verdict != Verdict::kFail) return "";
  std::vector<std::string> quantised;
  for (const auto& [side, path] : {std::pair("A", &result.a), std::pair("B", &result.b)}) {
    const std::string method = compare::MethodOf(*path);
    if (!method.empty()) quantised.push_back(fmt::format("{} is quantised ({})", side, method));
  }
  return quantised.empty()
             ? ""
             : fmt::format(
                   "{}: with --dequantised the numbers that the weights stand for are "
                   "compared, within the bound of their formats",
                   fmt::join(quantised, ", "));
}

std::vector<std::string> NamesBeside(const std::string& path, const Checkpoint& checkpoint) {
  if (!oracle::IsDirectory(path)) return {};
  formats::Beside beside = formats::BesideOf(path, checkpoint.files());
  std::vector<std::string> names = std::move(beside.files);
  for (const auto* folders : {&beside.folders, &beside.others}) {
    for (const std::string& folder : *folders) names.push_back(folder + "/");
  }
  return names;
}

/// A method that is not known leaves nothing to be judged.
std::string UnknownMethod(const Inputs& inputs) {
  for (const auto& [side, checkpoint] : {std::pair("A", &inputs.a), std::pair("B", &inputs.b)}) {
    if (checkpoint->unknown_method().empty()) continue;
    return fmt::format("{} is quantised by a method that is not known: {}", side,
                       oracle::Printable(checkpoint->unknown_method()));
  }
  return "";
}

}  // namespace

Result<CompareResult> Compare(const std::string& a, const std::string& b,
                              const CompareOptions& options) {
  Inputs inputs;
  SP_ASSIGN(inputs.cast, CastTarget(options.cast));
  SP_ASSIGN(const maps::Map map, maps::ReadMaps(options.maps));
  const auto open = options.dequantised ? Checkpoint::OpenDequantised : Checkpoint::Open;
  inputs.dequantised = options.dequantised;
  SP_ASSIGN(inputs.a, open(a, options.below_a));
  SP_ASSIGN(inputs.b, open(b, options.below_b));
  maps::Side side_a{"A", inputs.a.tensors(), nullptr, &inputs.a.values()};
  const maps::Side side_b{"B", inputs.b.tensors(), nullptr, &inputs.b.values()};
  std::optional<compare::Adapter> adapter;
  if (!options.adapter.empty()) {
    SP_ASSIGN(inputs.adapter, Checkpoint::Open(options.adapter));
    SP_ASSIGN(adapter, compare::Adapter::Of(options.adapter, *inputs.adapter, inputs.a));
    side_a.view = [&](const formats::StoredTensor& tensor) { return adapter->View(tensor); };
  }
  SP_ASSIGN(maps::Applied applied, maps::Apply(map, side_a, side_b, maps::ConfigOf({a, b})));
  Comparison run{inputs, applied.held};
  run.result.a = a;
  run.result.b = b;
  run.result.cast = options.cast;
  run.result.is_dequantised = options.dequantised;
  run.result.beside = inputs.a.beside() + inputs.b.beside();
  run.result.reason = UnknownMethod(inputs);
  run.result.beside_a = NamesBeside(a, inputs.a);
  run.result.beside_b = NamesBeside(b, inputs.b);
  run.result.left_out_a = applied.left_out_a;
  run.result.left_out_b = applied.left_out_b;
  SP_TRY(ComparePairs(run));
  AddGaps(applied.gaps, run.result);
  if (options.maps.empty() && options.adapter.empty()) {
    SP_ASSIGN(const compare::Suggestion suggestion, compare::Suggest(inputs, applied));
    run.result.suggestion = suggestion.reason;
    run.result.suggested_map = suggestion.map;
  }
  run.result.only_in_a = std::move(applied.only_in_a);
  run.result.lacking = std::move(applied.lacking);
  run.result.only_in_b = std::move(applied.only_in_b);
  CompareValues(run, map);
  Conclude(run.result);
  run.result.hint = HintOf(run.result);
  return std::move(run.result);
}

}  // namespace shardproof
