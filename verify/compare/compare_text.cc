// A comparison for people: the verdict first, then what differs, then what was compared.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "src/text/amounts.h"
#include "verify/compare/compare.h"
#include "verify/oracle/quote.h"

namespace shardproof {
namespace {

constexpr size_t kDifferencesShownMax = 100;
constexpr size_t kNamesShownMax = 20;
constexpr size_t kUnitsShownMax = 3;

/// "2 tensors and 1 value differ".
std::string Differ(const CompareResult& result) {
  std::set<std::string> names;
  uint64_t values = 0;
  for (const TensorDifference& difference : result.differences) {
    if (difference.kind == "value") {
      ++values;
    } else {
      names.insert(difference.tensor);
    }
  }
  const uint64_t tensors = names.size();
  std::string text = tensors == 0 ? "" : Count(tensors, "tensor");
  if (values > 0) text += (tensors == 0 ? "" : " and ") + Count(values, "value");
  return text + (tensors + values == 1 ? " differs" : " differ");
}

std::string Headline(const CompareResult& result) {
  if (result.verdict == Verdict::kInconclusive) return "INCONCLUSIVE  " + result.reason;
  if (result.verdict == Verdict::kPass) {
    const std::string tensors = Count(result.tensors, "tensor");
    const char* verb = result.tensors == 1 ? "equals its" : "equal their";
    if (result.is_by_seals) {
      return fmt::format("PASS  {} of B have the digests in A's seal; no value was read", tensors);
    }
    if (result.computed > 0) {
      return fmt::format(
          "PASS  {} of B {} counterpart in A, {} of them within the bound of {} (the largest error "
          "is {:.2g} of it)",
          tensors, verb, result.computed,
          result.is_dequantised ? "their formats" : "what the map computes", result.worst);
    }
    return result.cast_tensors == 0
               ? fmt::format("PASS  {} of B {} counterpart in A, bit for bit", tensors, verb)
               : fmt::format("PASS  {} of B {} counterpart in A, {} of them after a cast to {}",
                             tensors, verb, result.cast_tensors, result.cast);
  }
  std::vector<std::string> parts;
  if (!result.differences.empty()) parts.push_back(Differ(result));
  if (!result.only_in_a.empty())
    parts.push_back(fmt::format("{} only in A", Count(result.only_in_a.size(), "name")));
  if (!result.only_in_b.empty())
    parts.push_back(fmt::format("{} only in B", Count(result.only_in_b.size(), "name")));
  return fmt::format("FAIL  {}", fmt::join(parts, ", "));
}

std::string DifferenceText(const TensorDifference& difference) {
  std::string text = oracle::Printable(difference.tensor);
  if (!difference.source.empty()) {
    text += fmt::format(" (A: {})", oracle::Printable(difference.source));
  }
  if (difference.kind == "gap") {
    text += fmt::format(": no rule of the map covers {}\n", difference.seen);
  } else if (difference.kind != "differs") {
    text += fmt::format(": the {} differs: A {}, B {}\n", difference.kind, difference.expected,
                        difference.seen);
  } else if (difference.of_bound > 0) {
    text += fmt::format(
        ": {} of {} {} beyond {} bound, {} [{}]\n  worst at element {} ({}), {:.3g} of its bound: "
        "A {}, B {}\n",
        *difference.differing, Count(difference.elements, "element"),
        *difference.differing == 1 ? "is" : "are", *difference.differing == 1 ? "its" : "their",
        difference.dtype, fmt::join(difference.shape, ", "), *difference.index,
        fmt::join(difference.coordinates, ", "), difference.of_bound, difference.expected,
        difference.seen);
  } else {
    text +=
        fmt::format(": {} of {} differ{}, {} [{}]\n", *difference.differing,
                    Count(difference.elements, "element"), *difference.differing == 1 ? "s" : "",
                    difference.dtype, fmt::join(difference.shape, ", "));
    text +=
        fmt::format("  first at element {} ({}): A {}, B {}\n", *difference.index,
                    fmt::join(difference.coordinates, ", "), difference.expected, difference.seen);
  }
  if (!difference.explanation.empty()) {
    text += fmt::format("  likely: {}\n", difference.explanation);
  }
  return text;
}

std::string NamesText(const std::string& title, const std::vector<std::string>& names) {
  if (names.empty()) return "";
  std::string text = fmt::format("\n{}:\n", title);
  for (size_t i = 0; i < names.size() && i < kNamesShownMax; ++i) {
    text += "  " + oracle::Printable(names[i]) + "\n";
  }
  if (names.size() > kNamesShownMax) {
    text += fmt::format("  and {} more\n", names.size() - kNamesShownMax);
  }
  return text;
}

/// Quantised weights that are right, worst first, and those that could not be judged.
std::string UnitsText(const CompareResult& result) {
  std::string text;
  for (size_t i = 0; i < result.unjudged.size() && i < kNamesShownMax; ++i)
    text += (i == 0 ? "\nnot judged:\n  " : "  ") + oracle::Printable(result.unjudged[i]) + "\n";
  if (result.unjudged.size() > kNamesShownMax)
    text += fmt::format("  and {} more\n", result.unjudged.size() - kNamesShownMax);
  if (result.units.empty() || result.verdict == Verdict::kFail) return text;
  text += "\nlargest errors, as a part of the bound:\n";
  for (size_t i = 0; i < result.units.size() && i < kUnitsShownMax; ++i) {
    const UnitCompared& unit = result.units[i];
    text += fmt::format("  {:.2g}  {} (A {}, B {})\n", unit.of_bound,
                        oracle::Printable(unit.tensor), unit.a, unit.b);
  }
  return text;
}

}  // namespace

std::string CompareText(const CompareResult& result) {
  std::string text = Headline(result) + "\n";
  for (size_t i = 0; i < result.differences.size() && i < kDifferencesShownMax; ++i) {
    text += "\n" + DifferenceText(result.differences[i]);
  }
  if (result.differences.size() > kDifferencesShownMax) {
    text += fmt::format("\nand {} more differences\n",
                        result.differences.size() - kDifferencesShownMax);
  }
  text += UnitsText(result);
  text += NamesText("only in A", result.only_in_a) + NamesText("only in B", result.only_in_b) +
          NamesText("rules that were left out", result.lacking);
  if (!result.suggested_map.empty()) {
    text += fmt::format("\n{}. These rules would pair them (save them, then --map FILE):\n{}",
                        oracle::Printable(result.suggestion), result.suggested_map);
  }
  text += fmt::format("\ncompared {}, {}{}\n  A {}\n  B {}\n", Count(result.tensors, "tensor"),
                      result.is_by_seals
                          ? "by the seals"
                          : Count(result.elements, "element") + ", " + Bytes(result.bytes),
                      result.values == 0 ? "" : ", " + Count(result.values, "value"),
                      oracle::Printable(result.a), oracle::Printable(result.b));
  if (result.left_out_a + result.left_out_b > 0) {
    text += fmt::format("not compared: {} of A and {} of B, which the map leaves out\n",
                        Count(result.left_out_a, "element"), result.left_out_b);
  }
  if (result.values_left > 0) {
    text += fmt::format("not compared: {} that {} not a tensor, because {}\n",
                        Count(result.values_left, "value"), result.values_left == 1 ? "is" : "are",
                        result.is_dequantised ? "--dequantised compares weights alone"
                                              : "safetensors holds only tensors");
  }
  if (result.beside > 0)
    text += fmt::format("not compared: {} about activations\n", Count(result.beside, "tensor"));
  for (const auto& [side, names] :
       {std::pair("A", &result.beside_a), std::pair("B", &result.beside_b)}) {
    if (names->empty()) continue;
    text += fmt::format("not compared, no part of the model: {} of {}\n",
                        oracle::Printable(fmt::format("{}", fmt::join(*names, ", "))), side);
  }
  if (!result.hint.empty()) text += "\n" + result.hint + "\n";
  return text;
}

}  // namespace shardproof
