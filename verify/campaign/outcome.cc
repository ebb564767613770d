#include "verify/campaign/outcome.h"

#include <nlohmann/json.hpp>

namespace shardproof {
namespace {

using nlohmann::json;

constexpr size_t kFindingsMax = 40;

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
                                finding->tensor, finding->failure_class, finding->facts.cause,
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
    findings.push_back({f.property, f.kind, NameOf(f.phase), f.stage, f.tensor, f.failure_class,
                        f.cause, f.message});
  }
  return {{"index", outcome.index},
          {"verdict", static_cast<int>(outcome.verdict)},
          {"reason", outcome.reason},
          {"exit", outcome.exit},
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

std::optional<Phase> PhaseFromJson(const json& value) {
  const auto phase = ParsePhase(value.get<std::string>());
  return phase.ok() ? std::optional(phase.value()) : std::nullopt;
}

}  // namespace

CaseOutcome OutcomeFromJson(const json& value) {
  CaseOutcome outcome;
  outcome.index = value.at("index");
  outcome.verdict = VerdictFromJson(value.at("verdict"));
  outcome.reason = value.at("reason");
  outcome.exit = value.at("exit");
  for (const auto& [id, property] : value.at("properties").items()) {
    outcome.properties[id] = {VerdictFromJson(property.at(0)), property.at(1)};
  }
  for (const json& f : value.at("findings")) {
    outcome.findings.push_back(
        {f.at(0), f.at(1), PhaseFromJson(f.at(2)), f.at(3), f.at(4), f.at(5), f.at(6), f.at(7)});
  }
  return outcome;
}

}  // namespace shardproof
