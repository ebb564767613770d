#include "verify/cli/files/outcomes.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "src/text/printable.h"
#include "verify/cli/common/app.h"
#include "verify/oracle/quote.h"

namespace shardproof {
namespace {

std::string NameOf(const std::string& path) {
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  return trimmed.substr(trimmed.rfind('/') + 1);
}

Verdict VerdictOfExit(int exit_code) {
  if (exit_code == 0) return Verdict::kPass;
  return exit_code == kExitInconclusive ? Verdict::kInconclusive : Verdict::kFail;
}

/// A row whose verdict follows from what it counts.
gate::Row RowOf(const std::string& id, uint64_t comparisons, uint64_t findings,
                const std::string& reason = "") {
  gate::Row row{.id = id, .comparisons = comparisons, .findings = findings, .reason = reason};
  row.verdict = findings > 0                          ? Verdict::kFail
                : comparisons == 0 || !reason.empty() ? Verdict::kInconclusive
                                                      : Verdict::kPass;
  return row;
}

/// Without what was found.
gate::Outcome OutcomeOfAudited(const std::string& path, int exit_code) {
  gate::Outcome outcome;
  outcome.command = "audit";
  outcome.target = NameOf(path);
  outcome.verdict = VerdictOfExit(exit_code);
  outcome.exit_code = exit_code;
  return outcome;
}

void Finish(gate::Outcome& outcome) {
  for (const gate::Row& row : outcome.rows) outcome.comparisons += row.comparisons;
}

void AddLines(gate::Outcome& outcome, const std::string& property,
              const std::vector<std::string>& lines, const std::string& path) {
  for (const std::string& line : lines) {
    outcome.items.push_back({.property = property,
                             .kind = "damage",
                             .tensor = WithoutSizes(line, path),
                             .message = line});
  }
}

bool IsOfWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// A number, or a digest: of hexadecimal digits, of which one at least is a decimal one.
bool IsNumber(std::string_view word) {
  if (word.starts_with("0x")) word.remove_prefix(2);
  return word.find_first_of("0123456789") != std::string_view::npos &&
         word.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

}  // namespace

std::string WithoutSizes(const std::string& line, const std::string& path) {
  std::string text = line;
  for (size_t at = 0; !path.empty() && (at = text.find(path, at)) != std::string::npos;) {
    text.erase(at, path.size());
  }
  std::string out;
  bool is_quoted = false;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && IsOfWord(text[end])) ++end;
    if (end == at) {
      is_quoted = is_quoted != (text[at] == '\'');
      out += text[at++];
      continue;
    }
    const std::string_view word = std::string_view(text).substr(at, end - at);
    if (is_quoted || !IsNumber(word)) {
      out += word;
    } else {
      out += '#';
    }
    at = end;
  }
  return out;
}

gate::Outcome OutcomeOfCompare(const CompareResult& result) {
  gate::Outcome outcome;
  outcome.command = "compare";
  outcome.target = NameOf(result.a) + ", " + NameOf(result.b);
  outcome.verdict = result.verdict;
  outcome.exit_code = ExitCodeOf(result.verdict);
  outcome.reason = result.reason;
  const nlohmann::json document = CompareJson(result);
  for (size_t i = 0; i < result.differences.size(); ++i) {
    const TensorDifference& difference = result.differences[i];
    outcome.items.push_back({.property = "compare.values",
                             .kind = difference.kind,
                             .tensor = difference.tensor,
                             .message = document["differences"][i]["message"]});
  }
  const auto add_names = [&](const std::vector<std::string>& names, const char* kind,
                             const char* side) {
    for (const std::string& name : names) {
      outcome.items.push_back({.property = "compare.names",
                               .kind = kind,
                               .tensor = name,
                               .message = oracle::Quote(name) + ": only in " + side});
    }
  };
  add_names(result.only_in_a, "only_in_a", "A");
  add_names(result.only_in_b, "only_in_b", "B");
  const uint64_t compared = result.tensors + result.values;
  const uint64_t alone = result.only_in_a.size() + result.only_in_b.size();
  outcome.rows = {RowOf("compare.names", compared + alone, alone, result.reason),
                  RowOf("compare.values", compared, result.differences.size(), result.reason)};
  Finish(outcome);
  return outcome;
}

gate::Outcome OutcomeOfAudit(const AuditResult& result, int exit_code) {
  gate::Outcome outcome = OutcomeOfAudited(result.path, exit_code);
  AddLines(outcome, "audit.sound", result.damage, result.path);
  const std::string unjudged =
      result.unjudged.empty() ? "" : "not judged: " + result.unjudged.front();
  outcome.rows = {RowOf("audit.sound",
                        result.tensors.size() + result.values.size() + result.files.size(),
                        result.damage.size(), unjudged)};
  Finish(outcome);
  return outcome;
}

gate::Outcome OutcomeOfRunAudit(const RunAuditResult& result, int exit_code) {
  gate::Outcome outcome = OutcomeOfAudited(result.path, exit_code);
  uint64_t tensors = 0;
  uint64_t damage = 0;
  std::string unjudged;
  for (const RunStep& step : result.steps) {
    AddLines(outcome, "audit.sound", step.damage, step.path);
    tensors += step.tensors;
    damage += step.damage.size();
    if (unjudged.empty() && !step.unjudged.empty()) {
      unjudged = "not judged: " + step.name + ": " + step.unjudged.front();
    }
  }
  std::vector<std::string> of_run = result.findings;
  if (!result.steps.empty()) {
    for (const std::string& file : result.steps.back().lacks) {
      of_run.push_back(
          fmt::format("the newest checkpoint lacks {}, which others have", oracle::Quote(file)));
    }
  }
  AddLines(outcome, "audit.run", of_run, result.path);
  outcome.rows = {RowOf("audit.run", result.steps.size(), of_run.size()),
                  RowOf("audit.sound", tensors, damage, unjudged)};
  Finish(outcome);
  return outcome;
}

gate::Outcome OutcomeOfCrashtest(const crashtest::Outcome& result, int exit_code) {
  gate::Outcome outcome;
  outcome.command = "crashtest";
  outcome.is_headed = false;
  outcome.target = result.what.Text();
  outcome.verdict = VerdictOfExit(exit_code);
  outcome.exit_code = exit_code;
  outcome.reason = result.inconclusive;
  std::map<std::string, uint64_t> findings;
  for (const crashtest::BadGroup& group : result.groups) {
    const std::string property = std::string("crashtest.") + crash::ToString(group.model);
    ++findings[property];
    outcome.items.push_back({.property = property,
                             .kind = group.what,
                             .tensor = WithoutSizes(group.cause, ""),
                             .message = group.cause + ": " + group.line});
  }
  // Of states that were counted and not kept nobody can say that they are known.
  const bool is_cut = static_cast<size_t>(result.report.bad_count) > result.report.bad.size();
  for (const auto& [model, counts] : result.models) {
    const std::string property = std::string("crashtest.") + crash::ToString(model);
    outcome.rows.push_back(RowOf(property, static_cast<uint64_t>(counts.states.distinct),
                                 findings[property] + (is_cut && counts.bad > 0 ? 1 : 0),
                                 result.inconclusive));
  }
  Finish(outcome);
  return outcome;
}

}  // namespace shardproof
