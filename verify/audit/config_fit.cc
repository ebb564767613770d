#include "verify/audit/config_fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "verify/audit/asked.h"
#include "verify/oracle/quote.h"

namespace shardproof {
namespace {

using nlohmann::json;

constexpr size_t kNamedMax = 10;

std::string ShapeText(const json& shape) {
  return fmt::format("[{}]", fmt::join(shape.get<std::vector<int64_t>>(), ", "));
}

}  // namespace

void HoldConfig(const std::string& python, const std::string& package, AuditResult& result) {
  const json answer =
      Asked({python, package + "/_programs/_fits_config.py", result.path}, {"model"});
  const std::string where = oracle::Printable(result.path);
  if (answer.contains("error")) {
    result.unjudged.push_back(
        fmt::format("{}: config.json: how it fits the tensors is not known: {}", where,
                    oracle::Printable(answer["error"].get<std::string>())));
    return;
  }
  const std::string model = oracle::Printable(answer["model"].get<std::string>());
  for (const json& name : answer["missing"]) {
    result.damage.push_back(fmt::format("{}: expected tensor {}, which {} has, found none", where,
                                        oracle::Quote(name.get<std::string>()), model));
  }
  for (const json& each : answer["mismatched"]) {
    result.damage.push_back(fmt::format("{}: tensor {}: expected {}, as {} has it, found {}", where,
                                        oracle::Quote(each[0].get<std::string>()),
                                        ShapeText(each[2]), model, ShapeText(each[1])));
  }
  std::vector<std::string> names;
  for (const json& name : answer["unexpected"]) {
    if (names.size() < kNamedMax) names.push_back(oracle::Quote(name.get<std::string>()));
  }
  const size_t count = answer["unexpected"].size();
  if (count > 0) {
    result.remarks.push_back(
        fmt::format("not loaded by {}: {}{}", model, fmt::join(names, ", "),
                    count > names.size() ? fmt::format(" and {} more", count - names.size()) : ""));
  }
}

}  // namespace shardproof
