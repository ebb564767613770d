// A comparison for machines.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "verify/compare/compare.h"
#include "verify/oracle/quote.h"

namespace shardproof {
namespace {

std::string Message(const TensorDifference& difference) {
  std::string text = difference.kind == "value" ? "" : "tensor ";
  text += oracle::Quote(difference.tensor) + ": ";
  if (difference.kind == "gap") return text + "no rule of the map covers " + difference.seen;
  if (difference.of_bound > 0) {
    return text +
           fmt::format("{} of {} elements are beyond their bound, worst element {}: A {}, B {}",
                       *difference.differing, difference.elements, *difference.index,
                       difference.expected, difference.seen);
  }
  if (difference.kind != "differs") {
    return text + fmt::format("the {} differs: A {}, B {}", difference.kind, difference.expected,
                              difference.seen);
  }
  return text + fmt::format("{} of {} elements differ, first element {}: A {}, B {}",
                            *difference.differing, difference.elements, *difference.index,
                            difference.expected, difference.seen);
}

nlohmann::json DifferenceJson(const TensorDifference& difference) {
  nlohmann::json json = {{"kind", difference.kind},         {"tensor", difference.tensor},
                         {"dtype", difference.dtype},       {"shape", difference.shape},
                         {"elements", difference.elements}, {"expected", difference.expected},
                         {"seen", difference.seen},         {"explanation", difference.explanation},
                         {"message", Message(difference)}};
  if (!difference.source.empty()) json["source"] = difference.source;
  if (difference.of_bound > 0) json["of_bound"] = difference.of_bound;
  if (difference.differing) json["differing"] = *difference.differing;
  if (difference.index) {
    json["index"] = *difference.index;
    json["coordinates"] = difference.coordinates;
  }
  return json;
}

}  // namespace

nlohmann::json CompareJson(const CompareResult& result) {
  nlohmann::json differences = nlohmann::json::array();
  for (const TensorDifference& difference : result.differences) {
    differences.push_back(DifferenceJson(difference));
  }
  nlohmann::json units = nlohmann::json::array();
  for (const UnitCompared& unit : result.units) {
    units.push_back(
        {{"tensor", unit.tensor}, {"a", unit.a}, {"b", unit.b}, {"of_bound", unit.of_bound}});
  }
  return {{"verdict", ToString(result.verdict)},
          {"reason", result.reason},
          {"a", result.a},
          {"b", result.b},
          {"cast", result.cast},
          {"differences", std::move(differences)},
          {"only_in_a", result.only_in_a},
          {"lacking", result.lacking},
          {"only_in_b", result.only_in_b},
          {"suggestion", result.suggestion},
          {"suggested_map", result.suggested_map},
          {"tensors", result.tensors},
          {"by_seals", result.is_by_seals},
          {"cast_tensors", result.cast_tensors},
          {"computed", result.computed},
          {"worst_of_bound", result.worst},
          {"left_out_a", result.left_out_a},
          {"left_out_b", result.left_out_b},
          {"elements", result.elements},
          {"bytes", result.bytes},
          {"values", result.values},
          {"values_left", result.values_left},
          {"dequantised", result.is_dequantised},
          {"units", std::move(units)},
          {"unjudged", result.unjudged},
          {"beside_a", result.beside_a},
          {"beside_b", result.beside_b},
          {"hint", result.hint}};
}

}  // namespace shardproof
