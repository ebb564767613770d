#include "verify/compare/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <optional>
#include <thread>

#include "verify/compare/diagnose.h"
#include "verify/compare/name_map.h"
#include "verify/compare/pairing.h"
#include "verify/compare/streams.h"
#include "verify/compare/suggest.h"
#include "verify/oracle/quote.h"
#include "verify/verdict/values.h"

namespace shardproof {
namespace {

using compare::Checkpoint;
using compare::Pairing;
using compare::Reader;
using compare::TensorPair;
using oracle::DtypeInfo;
using oracle::NumberKind;

/// One run of Compare: what is compared.
struct Inputs {
  Checkpoint a;
  Checkpoint b;
  const DtypeInfo* cast = nullptr;
};

/// One thread's part of it: the result as it grows.
struct Comparison {
  const Inputs& inputs;
  CompareResult result = {};
};

Result<const DtypeInfo*> CastTarget(const std::string& name) {
  if (name.empty()) return nullptr;
  const DtypeInfo* dtype = oracle::FindDtype(name);
  if (dtype != nullptr && dtype->kind == NumberKind::kFloat) return dtype;
  return BadInput(fmt::format("cast: expected one of {}, found {}", oracle::KnownFloatDtypes(),
                              oracle::Quote(name)));
}

TensorDifference Describe(const TensorPair& pair, const compare::TensorReader& b) {
  TensorDifference difference;
  difference.tensor = pair.b_name;
  difference.source = pair.Source();
  difference.dtype = b.dtype().name;
  difference.shape = b.shape();
  difference.elements = b.elements();
  return difference;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// A difference of shape or dtype: said as such, values are not held against each other.
Result<bool> FoundTagDifference(Comparison& run, const TensorPair& pair, Reader& a, Reader& b) {
  const bool casts = run.inputs.cast != nullptr && &b->dtype() == run.inputs.cast &&
                     a->dtype().kind == NumberKind::kFloat;
  TensorDifference difference = Describe(pair, *b);
  if (a->shape() != b->shape()) {
    difference.kind = "shape";
    difference.expected = ShapeText(a->shape());
    difference.seen = ShapeText(b->shape());
    SP_ASSIGN(difference.explanation, compare::DiagnoseShape(*a, *b));
  } else if (&a->dtype() != &b->dtype() && !casts) {
    difference.kind = "dtype";
    difference.expected = a->dtype().name;
    difference.seen = b->dtype().name;
    const bool both_float =
        a->dtype().kind == NumberKind::kFloat && b->dtype().kind == NumberKind::kFloat;
    if (both_float) {
      difference.explanation =
          fmt::format("with cast {} the values can be compared", difference.seen);
    }
  } else {
    return false;
  }
  run.result.differences.push_back(std::move(difference));
  return true;
}

Status AddValueDifference(Comparison& run, const TensorPair& pair, compare::TensorReader& a,
                          compare::TensorReader& b, const compare::Difference& found) {
  TensorDifference difference = Describe(pair, b);
  difference.kind = "differs";
  difference.differing = found.differing;
  difference.index = found.first;
  difference.coordinates = CoordinatesOf(*found.first, b.shape());
  difference.expected = ElementText(b.dtype().name, found.expected);
  difference.seen = ElementText(b.dtype().name, found.seen);
  SP_ASSIGN(const std::string other, compare::FindSameValues(run.inputs.a, run.inputs.b, pair));
  if (!other.empty()) {
    difference.explanation = fmt::format("equals another tensor: A's {}", oracle::Quote(other));
  } else {
    SP_ASSIGN(difference.explanation, compare::DiagnoseValues(a, b, *found.first));
  }
  run.result.differences.push_back(std::move(difference));
  return Ok();
}

/// With a cast, a tensor that B keeps in A's own dtype may be as it was, or may have gone through
/// the cast and back.
Result<bool> EqualAfterRoundTrip(Comparison& run, const TensorPair& pair, Reader& b) {
  const bool applies = run.inputs.cast != nullptr && &b->dtype() != run.inputs.cast &&
                       b->dtype().kind == NumberKind::kFloat;
  if (!applies) return false;
  SP_ASSIGN(Reader a, compare::ReadSource(run.inputs.a, pair));
  const DtypeInfo& own = a->dtype();
  const Reader there_and_back = Cast(Cast(std::move(a), *run.inputs.cast), own);
  SP_ASSIGN(const auto found, compare::CountDifferences(*there_and_back, *b, true));
  return found.differing == 0;
}

Status ComparePair(Comparison& run, const TensorPair& pair) {
  SP_ASSIGN(Reader a, compare::ReadSource(run.inputs.a, pair));
  Reader b = run.inputs.b.Read(*run.inputs.b.Find(pair.b_name));
  SP_ASSIGN(const bool tag_differs, FoundTagDifference(run, pair, a, b));
  if (tag_differs) return Ok();
  const bool casts = &a->dtype() != &b->dtype();
  if (casts) a = Cast(std::move(a), b->dtype());
  SP_ASSIGN(const compare::Difference found, compare::CountDifferences(*a, *b, casts));
  bool cast_used = casts;
  if (found.differing > 0 && !casts) {
    SP_ASSIGN(cast_used, EqualAfterRoundTrip(run, pair, b));
  }
  const bool equal = found.differing == 0 || (cast_used && !casts);
  run.result.tensors += 1;
  run.result.cast_tensors += cast_used;
  run.result.elements += b->elements();
  run.result.bytes += b->elements() * b->width();
  return equal ? Ok() : AddValueDifference(run, pair, *a, *b, found);
}

/// All pairs, on as many threads as there are cores. \error of the first pair that has one.
Status ComparePairs(const std::vector<TensorPair>& pairs, Comparison& run) {
  const size_t thread_count =
      std::clamp<size_t>(std::thread::hardware_concurrency(), 1, std::max<size_t>(pairs.size(), 1));
  std::vector<Comparison> parts(thread_count, Comparison{run.inputs});
  std::vector<Status> outcomes(pairs.size(), Ok());
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (Comparison& part : parts) {
    threads.emplace_back([&] {
      for (size_t i = next++; i < pairs.size(); i = next++)
        outcomes[i] = ComparePair(part, pairs[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& outcome : outcomes) SP_TRY(outcome);
  CompareResult& whole = run.result;
  for (Comparison& part : parts) {
    std::move(part.result.differences.begin(), part.result.differences.end(),
              std::back_inserter(whole.differences));
    whole.tensors += part.result.tensors;
    whole.cast_tensors += part.result.cast_tensors;
    whole.elements += part.result.elements;
    whole.bytes += part.result.bytes;
  }
  return Ok();
}

/// A value's name by the map's prefixes; its other rules are about tensors.
std::string WithPrefix(const compare::NameMap& map, const std::string& name) {
  const bool has_prefix = name.starts_with(map.strip_prefix);
  return map.add_prefix + (has_prefix ? name.substr(map.strip_prefix.size()) : name);
}

/// What is no tensor: options of an optimizer, step counts, extra state.
void CompareValues(Comparison& run, const compare::NameMap* map) {
  CompareResult& result = run.result;
  if (!run.inputs.a.HoldsValues() || !run.inputs.b.HoldsValues()) {
    result.values_left = run.inputs.a.values().size() + run.inputs.b.values().size();
    return;
  }
  std::map<std::string, const std::string*> unpaired;
  for (const formats::StoredValue& value : run.inputs.b.values())
    unpaired.emplace(value.name, &value.text);
  for (const formats::StoredValue& value : run.inputs.a.values()) {
    const std::string name = map == nullptr ? value.name : WithPrefix(*map, value.name);
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

/// Worst first: anything that differs fails; a pass needs something that was compared.
void Conclude(CompareResult& result) {
  std::sort(result.differences.begin(), result.differences.end(),
            [](const auto& x, const auto& y) { return x.tensor < y.tensor; });
  if (!result.differences.empty() || !result.only_in_a.empty() || !result.only_in_b.empty()) {
    result.verdict = Verdict::kFail;
  } else if (result.tensors + result.values == 0) {
    result.reason = "nothing was compared: neither A nor B holds a tensor";
  } else if (result.elements + result.values == 0) {
    result.reason = "nothing was compared: every tensor is empty";
  } else {
    result.verdict = Verdict::kPass;
  }
}

}  // namespace

Result<CompareResult> Compare(const std::string& a, const std::string& b,
                              const CompareOptions& options) {
  Inputs inputs;
  SP_ASSIGN(inputs.cast, CastTarget(options.cast));
  std::optional<compare::NameMap> map;
  if (!options.map_file.empty()) {
    SP_ASSIGN(map, compare::ReadNameMap(options.map_file));
  }
  SP_ASSIGN(inputs.a, Checkpoint::Open(a, options.below_a));
  SP_ASSIGN(inputs.b, Checkpoint::Open(b, options.below_b));
  SP_ASSIGN(Pairing pairing, compare::Pair(inputs.a, inputs.b, map ? &*map : nullptr));
  Comparison run{inputs};
  run.result.a = a;
  run.result.b = b;
  run.result.cast = options.cast;
  SP_TRY(ComparePairs(pairing.pairs, run));
  if (!map) {
    SP_ASSIGN(const compare::Suggestion suggestion, compare::Suggest(inputs.a, inputs.b, pairing));
    if (!suggestion.reason.empty()) {
      run.result.suggestion = suggestion.reason;
      run.result.suggested_map = compare::NameMapText(suggestion.map);
    }
  }
  run.result.only_in_a = std::move(pairing.only_in_a);
  run.result.only_in_b = std::move(pairing.only_in_b);
  CompareValues(run, map ? &*map : nullptr);
  Conclude(run.result);
  return std::move(run.result);
}

}  // namespace shardproof
