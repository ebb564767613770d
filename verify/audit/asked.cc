#include "verify/audit/asked.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "verify/process/program.h"

namespace shardproof {

nlohmann::json Asked(const std::vector<std::string>& words, const std::vector<std::string>& keys) {
  constexpr auto kDeadline = std::chrono::minutes(5);
  const auto ended = RunProgram(words, kDeadline);
  if (!ended.ok()) return {{"error", ended.error().message}};
  std::string output = ended.value().output;
  while (output.ends_with('\n')) output.pop_back();
  const size_t line = output.rfind('\n');
  nlohmann::json answer =
      nlohmann::json::parse(output.substr(line == std::string::npos ? 0 : line + 1), nullptr,
                            /*allow_exceptions=*/false);
  const bool is_one = answer.is_object() &&
                      (answer.contains("error") ||
                       std::any_of(keys.begin(), keys.end(),
                                   [&](const std::string& key) { return answer.contains(key); }));
  if (!ended.value().ok() || !is_one) return {{"error", words[0] + ": " + ended.value().how}};
  return answer;
}

}  // namespace shardproof
