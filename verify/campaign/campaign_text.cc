#include "verify/campaign/campaign_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "src/text/printable.h"
#include "verify/generate/features.h"

namespace shardproof {
namespace {

constexpr int kLineWidth = 118;

double CasesAMinute(const SoakSummary& summary) {
  return summary.duration_ms == 0
             ? 0
             : static_cast<double>(summary.cases()) / summary.duration_ms * 60000;
}

/// Words in lines that begin with `head` or as many blanks.
std::string InLines(const std::string& head, const std::vector<std::string>& words) {
  return Wrapped(fmt::format("{} {}", head, fmt::join(words, ", ")), kLineWidth,
                 static_cast<int>(head.size()) + 1) +
         "\n";
}

/// What no case had: one folded line, or all of it.
std::string Never(const std::string& head, const std::vector<std::string>& never, bool explain) {
  if (never.empty()) return "";
  if (explain) return InLines(head, never);
  return fmt::format("{} {} (--explain lists them)\n", head, never.size());
}

std::string Features(const SoakSummary& summary, bool explain) {
  std::vector<std::string> seen;
  std::vector<std::string> never;
  std::vector<std::string> known = KnownFeatures();
  const std::string both_struck = kBothStruck;
  known.insert(std::upper_bound(known.begin(), known.end(), both_struck), both_struck);
  for (const std::string& feature : known) {
    const auto count = summary.features.find(feature);
    if (count == summary.features.end()) {
      never.push_back(feature);
      continue;
    }
    const double share =
        100.0 * static_cast<double>(count->second) / static_cast<double>(summary.cases());
    seen.push_back(fmt::format("{} {}", feature, share < 1 ? "<1" : fmt::format("{:.0f}", share)));
  }
  std::string text = InLines("features (% of cases):", seen);
  text += Never("features never seen:  ", never, explain);
  return text + fmt::format("two features together:  {} pairs\n", Grouped(summary.PairsSeen()));
}

std::string Properties(const SoakSummary& summary, bool explain) {
  std::string text = fmt::format("{:<36} {:>12} {:>16} {:>8} {:>12}\n", "property", "cases judged",
                                 "comparisons", "failed", "inconclusive");
  std::vector<std::string> never;
  for (const auto& [id, tally] : summary.properties) {
    if (tally.judged + tally.failed + tally.inconclusive == 0) {
      never.push_back(id);
      continue;
    }
    text +=
        fmt::format("{:<36} {:>12} {:>16} {:>8} {:>12}\n", id, Grouped(tally.judged),
                    Grouped(tally.comparisons), Grouped(tally.failed), Grouped(tally.inconclusive));
  }
  text += Never("properties not judged:", never, explain);
  return text;
}

}  // namespace

std::string SoakProgress(const SoakSummary& summary) {
  return fmt::format("{} cases, {} failed, {} inconclusive, {:.0f} per minute",
                     Grouped(summary.cases()), Grouped(summary.failed),
                     Grouped(summary.inconclusive), CasesAMinute(summary));
}

Verdict SoakVerdict(const SoakSummary& summary, SoakEnd end) {
  if (summary.failed > 0) return Verdict::kFail;
  return SoakReason(summary, end).empty() ? Verdict::kPass : Verdict::kInconclusive;
}

std::string SoakReason(const SoakSummary& summary, SoakEnd end) {
  if (summary.failed > 0) return "";
  if (summary.inconclusive > 0) {
    const CaseOutcome& first = summary.unclear.front().outcome;
    return fmt::format("{} could not be judged: case {}: {}", Plural(summary.inconclusive, "case"),
                       first.index, first.reason);
  }
  if (end == SoakEnd::kSignal) return "the time limit was reached";
  return summary.cases() == 0 ? "no case was run" : "";
}

std::string SoakTables(const SoakSummary& summary, SoakEnd end, bool explain) {
  if (summary.cases() == 0 || end == SoakEnd::kFailure) return "";
  return Features(summary, explain) + Properties(summary, explain);
}

std::string SoakLine(const SoakSummary& summary, SoakEnd end) {
  const std::string reason = SoakReason(summary, end);
  return fmt::format(
      "{}: {}{} of {} generated cases passed, {} failed, {} inconclusive; {} comparisons, "
      "{:.1f} ranks per case; {:.0f} cases per minute, {:.1f} s\n",
      ToString(SoakVerdict(summary, end)), reason.empty() ? "" : reason + "; ",
      Grouped(summary.passed), Grouped(summary.cases()), Grouped(summary.failed),
      Grouped(summary.inconclusive), Grouped(summary.comparisons),
      summary.cases() == 0
          ? 0.0
          : static_cast<double>(summary.ranks) / static_cast<double>(summary.cases()),
      CasesAMinute(summary), summary.duration_ms / 1000);
}

}  // namespace shardproof
