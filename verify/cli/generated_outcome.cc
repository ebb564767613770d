// Many cases, as a gate sees them.
#include <fmt/format.h>

#include "verify/campaign/campaign_text.h"
#include "verify/cli/command.h"
#include "verify/cli/generated.h"

namespace shardproof {

gate::Outcome OutcomeOfSoak(const SoakOptions& options, const SoakSummary& summary, SoakEnd end,
                            const std::string& report) {
  gate::Outcome outcome;
  outcome.command = "verify";
  outcome.target =
      fmt::format("generated cases of seed {}, {}", options.seed, options.subject.name);
  outcome.verdict = SoakVerdict(summary, end);
  outcome.exit_code = ExitCodeOf(outcome.verdict);
  outcome.reason = SoakReason(summary, end);
  outcome.comparisons = summary.comparisons;
  outcome.duration_ms = summary.duration_ms;
  outcome.is_drawn = true;
  if (!summary.failures.empty()) outcome.report = report;
  for (const auto& [id, tally] : summary.properties) {
    outcome.rows.push_back({.id = id,
                            .verdict = tally.failed > 0         ? Verdict::kFail
                                       : tally.inconclusive > 0 ? Verdict::kInconclusive
                                       : tally.judged > 0       ? Verdict::kPass
                                                                : Verdict::kSkip,
                            .comparisons = tally.comparisons,
                            .findings = tally.failed});
  }
  for (const FailedCase& failure : summary.failures) {
    for (const FindingOutcome& finding : failure.outcome.findings) {
      outcome.items.push_back(
          {.property = finding.property,
           .kind = finding.kind,
           .failure_class = finding.failure_class,
           .stage = finding.stage,
           .tensor = finding.tensor,
           .message = fmt::format("case {}: {}", failure.outcome.index, finding.message)});
    }
  }
  return outcome;
}

}  // namespace shardproof
