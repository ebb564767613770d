#include "verify/audit/config_fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "verify/oracle/quote.h"
#include "verify/process/program.h"

namespace shardproof {
namespace {

using nlohmann::json;

constexpr auto kDeadline = std::chrono::minutes(5);
constexpr size_t kNamedMax = 10;

/// The last line of what the script printed; an object in any case.
json AnswerOf(const std::string& python, const std::string& package, const std::string& path) {
  const auto ended = RunProgram({python, package + "/_fits_config.py", path}, kDeadline);
  if (!ended.ok()) return {{"error", ended.error().message}};
  std::string output = ended.value().output;
  while (output.ends_with('\n')) output.pop_back();
  const size_t line = output.rfind('\n');
  json answer = json::parse(output.substr(line == std::string::npos ? 0 : line + 1), nullptr,
                            /*allow_exceptions=*/false);
  const bool is_one = answer.is_object() && (answer.contains("error") || answer.contains("model"));
  if (!ended.value().ok() || !is_one) return {{"error", python + ": " + ended.value().how}};
  return answer;
}

std::string ShapeText(const json& shape) {
  return fmt::format("[{}]", fmt::join(shape.get<std::vector<int64_t>>(), ", "));
}

}  // namespace

void HoldConfig(const std::string& python, const std::string& package, AuditResult& result) {
  const json answer = AnswerOf(python, package, result.path);
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
