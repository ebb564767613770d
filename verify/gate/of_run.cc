// A run of ranks, as a gate sees it.
#include <fmt/format.h>

#include "verify/gate/gate.h"

namespace shardproof::gate {
namespace {

std::string NameOfFile(const std::string& path) {
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  return trimmed.substr(trimmed.rfind('/') + 1);
}

std::string Target(const RunResult& result) {
  const std::string subject = NameOfFile(result.test_case.subject);
  const std::string model = NameOfFile(result.test_case.model.checkpoint);
  return model.empty() ? subject : subject + ", " + model;
}

Row RowOf(const PropertyResult& property) {
  const Judgement& judgement = property.judgement;
  return {.id = property.id,
          .verdict = judgement.verdict(),
          .comparisons = judgement.comparisons(),
          .findings = judgement.FindingCount(),
          .reason = judgement.reason()};
}

}  // namespace

Outcome OutcomeOf(const RunResult& result, const std::string& command) {
  Outcome outcome;
  outcome.command = command;
  outcome.target = Target(result);
  outcome.verdict = result.verdict;
  outcome.exit_code = result.exit_code;
  outcome.comparisons = result.compared.comparisons;
  outcome.duration_ms = result.duration_ms;
  outcome.report = result.report_path;
  for (const Finding* finding : result.Findings()) {
    outcome.items.push_back(
        {.property = finding->property,
         .kind = finding->kind,
         .failure_class = finding->failure_class,
         .stage = finding->stage,
         .tensor = finding->tensor,
         .message = finding->message.empty() ? finding->kind : finding->message});
  }
  for (const PropertyResult& property : result.properties) {
    outcome.rows.push_back(RowOf(property));
    for (const LeftOut& left : property.judgement.left_out()) {
      outcome.items.push_back({.property = property.id,
                               .kind = left.kind,
                               .failure_class = left.failure_class,
                               .stage = left.stage,
                               .tensor = left.tensor});
    }
  }
  return outcome;
}

void Apply(const Outcome& outcome, RunResult& result) {
  result.verdict = outcome.verdict;
  result.exit_code = outcome.exit_code;
  GateNotes& gate = result.gate;
  gate.is_used = outcome.is_gated;
  gate.known_count = outcome.KnownCount();
  gate.expired_count = outcome.ExpiredCount();
  gate.notes = outcome.notes;
  for (const Item& item : outcome.items) {
    if (item.known) gate.known[item.fingerprint()] = *item.known;
  }
  for (const Row& row : outcome.rows) {
    if (row.is_known) gate.known_properties.insert(row.id);
  }
}

}  // namespace shardproof::gate
