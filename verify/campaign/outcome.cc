#include "verify/campaign/outcome.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

namespace shardproof {
namespace {

using nlohmann::json;

constexpr size_t kFindingsMax = 40;
constexpr size_t kCauseWords = 8;

/// The words of a text without names, numbers and what is quoted; of a signal or an exit, its
/// number.
std::string PlainWords(const std::string& text) {
  std::istringstream words(text);
  std::string plain;
  bool numbered = false;
  size_t kept = 0;
  for (std::string word; kept < kCauseWords && words >> word;
       numbered = word == "signal" || word == "exit") {
    while (!word.empty() && std::string_view(",.;:").find(word.back()) != std::string_view::npos)
      word.pop_back();
    const bool is_word =
        !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
          return std::isalpha(c) != 0 || c == '-';
        });
    if (!is_word && !numbered) continue;
    plain += (plain.empty() ? "" : " ") + word;
    ++kept;
  }
  return plain;
}

/// What the data suggest, without what depends on sizes; of a rank that did not end well, how it
/// ended.
std::string CauseOf(const Finding& finding) {
  const bool ended = finding.kind == "lost" || finding.kind == "exit" || finding.kind == "error";
  if (finding.explanation.empty() && ended) return PlainWords(finding.seen);
  std::string cause =
      finding.explanation.substr(0, finding.explanation.find_first_of(":0123456789"));
  while (!cause.empty() && cause.back() == ' ') cause.pop_back();
  return cause;
}

}  // namespace

CaseOutcome OutcomeOf(const RunResult& result) {
  CaseOutcome outcome;
  outcome.verdict = result.verdict;
  for (const PropertyResult& property : result.properties) {
    outcome.properties[property.id] = {property.judgement.verdict(),
                                       property.judgement.comparisons()};
    if (property.judgement.verdict() == Verdict::kInconclusive && outcome.reason.empty()) {
      outcome.reason = property.id + ": " + property.judgement.reason();
    }
  }
  for (const Finding* finding : result.Findings()) {
    if (outcome.findings.size() == kFindingsMax) break;
    outcome.findings.push_back({finding->property, finding->kind, finding->phase, finding->stage,
                                finding->tensor, finding->failure_class, CauseOf(*finding),
                                finding->message});
  }
  return outcome;
}

CaseOutcome NotJudged(uint64_t index, std::string reason) {
  CaseOutcome outcome;
  outcome.index = index;
  outcome.reason = std::move(reason);
  return outcome;
}

json OutcomeToJson(const CaseOutcome& outcome) {
  json properties = json::object();
  for (const auto& [id, property] : outcome.properties) {
    properties[id] = {static_cast<int>(property.verdict), property.comparisons};
  }
  json findings = json::array();
  for (const FindingOutcome& f : outcome.findings) {
    findings.push_back(
        {f.property, f.kind, f.phase, f.stage, f.tensor, f.failure_class, f.cause, f.message});
  }
  return {{"index", outcome.index},
          {"verdict", static_cast<int>(outcome.verdict)},
          {"reason", outcome.reason},
          {"lost", outcome.lost},
          {"properties", std::move(properties)},
          {"findings", std::move(findings)}};
}

namespace {

Verdict VerdictFromJson(const json& value) {
  const int number = value.get<int>();
  // Somebody may have written it: no value that the enumeration does not have.
  if (number < 0 || number > static_cast<int>(Verdict::kFail)) return Verdict::kInconclusive;
  return static_cast<Verdict>(number);
}

}  // namespace

CaseOutcome OutcomeFromJson(const json& value) {
  CaseOutcome outcome;
  outcome.index = value.at("index");
  outcome.verdict = VerdictFromJson(value.at("verdict"));
  outcome.reason = value.at("reason");
  outcome.lost = value.at("lost");
  for (const auto& [id, property] : value.at("properties").items()) {
    outcome.properties[id] = {VerdictFromJson(property.at(0)), property.at(1)};
  }
  for (const json& f : value.at("findings")) {
    outcome.findings.push_back(
        {f.at(0), f.at(1), f.at(2), f.at(3), f.at(4), f.at(5), f.at(6), f.at(7)});
  }
  return outcome;
}

}  // namespace shardproof
