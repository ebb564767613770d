#include "verify/cli/common/gating.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "src/text/printable.h"
#include "verify/case/json_fields.h"
#include "verify/cli/common/app.h"
#include "verify/process/outputs.h"

namespace shardproof {
namespace {

// Of this process, which runs one command.
std::optional<gate::Gate> opened;
std::string refusal;

std::string UpperCase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  return text;
}

/// The text with the gate's verdict in place of its first line, if it is another.
std::string Headed(const gate::Outcome& outcome, Verdict before, const std::string& text) {
  if (outcome.verdict == before && outcome.KnownCount() == 0) return text;
  const std::string words = gate::VerdictInWords(outcome);
  const size_t verdict = ToString(outcome.verdict).size();
  std::string line = UpperCase(words.substr(0, verdict)) + words.substr(verdict);
  if (!outcome.reason.empty()) line += "  " + Printable(outcome.reason);
  // Of a command that says first what it ran, that stays.
  if (!outcome.is_headed) return line + "\n" + text;
  return line + text.substr(std::min(text.find('\n'), text.size()));
}

/// How each finding is called in a list of known failures.
std::string Fingerprints(const gate::Outcome& outcome) {
  constexpr size_t kShown = 20;
  std::string text;
  for (size_t i = 0; i < outcome.items.size() && i < kShown; ++i) {
    const gate::Item& item = outcome.items[i];
    const char* standing = !item.known ? "new" : item.known->is_expired ? "expired" : "known";
    text += fmt::format("  {} {} {} {}{}\n", standing, item.fingerprint(), item.property, item.kind,
                        item.tensor.empty() ? "" : " of " + Printable(item.tensor));
  }
  if (text.empty()) return "";
  if (outcome.items.size() > kShown) {
    text += fmt::format("  and {} more\n", outcome.items.size() - kShown);
  }
  return "\nfindings, by fingerprint:\n" + text;
}

void AddToDocument(const gate::Outcome& outcome, nlohmann::json& document) {
  using nlohmann::json;
  json properties = json::array();
  for (const gate::Row& row : outcome.rows) {
    properties.push_back({{"id", row.id},
                          {"verdict", ToString(row.verdict)},
                          {"comparisons", row.comparisons},
                          {"findings", row.findings}});
  }
  json findings = json::array();
  for (const gate::Item& item : outcome.items) {
    json& one = findings.emplace_back(json{{"fingerprint", item.fingerprint()},
                                           {"property", item.property},
                                           {"kind", item.kind},
                                           {"tensor", item.tensor},
                                           {"message", item.message}});
    if (item.known) one["known"] = gate::KnownToJson(*item.known);
  }
  document["comparisons"] = outcome.comparisons;
  document["properties"] = std::move(properties);
  document["fingerprints"] = std::move(findings);
  document["exit_code"] = outcome.exit_code;
  if (outcome.is_gated) {
    document["verdict"] = ToString(outcome.verdict);  // of an audit: beside `sound`
    document["gate"] = gate::GateToJson(outcome);
  }
}

}  // namespace

void AddGateOptions(CLI::App& command, gate::Options& options) {
  const auto add = [&](const char* name, std::string& target, const char* type,
                       const char* description) {
    command.add_option(name, target, description)
        ->check(NotEmpty)
        ->type_name(type)
        ->group(kGateOptions);
  };
  add("--summary", options.summary, "FILE",
      "Write the verdict, the first findings and a table of properties to this file, as Markdown "
      "for the page of a CI run");
  add("--report-url", options.report_url, "URL", "Link to the report, for the summary");
  add("--known", options.known, "FILE",
      "Known failures: they are shown, but do not fail the run until they expire "
      "(verify/gate/README.md)");
  command
      .add_option("--min-comparisons", options.min_comparisons,
                  "With fewer than N comparisons, the verdict is inconclusive")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1'000'000'000'000'000}))
      ->type_name("N")
      ->group(kGateOptions);
  add("--baseline", options.baseline, "FILE",
      "The verdict is inconclusive if a property that compared something in this earlier --json "
      "result compares nothing now, or fewer than 90 % of the comparisons then are made");
  add("--prom", options.prometheus, "FILE",
      "Write the verdict and the counts for Prometheus' textfile collector to this file");
}

Result<gate::Gate> OpenGate(const gate::Options& options, const std::vector<std::string>& inputs,
                            const std::string& json) {
  for (const auto& [option, file] :
       {std::pair("--summary", options.summary), std::pair("--prom", options.prometheus)}) {
    for (const std::string& input : inputs) SP_TRY(CheckNotOf(file, input, option));
    SP_TRY(CheckNotOf(file, options.known, option));
    SP_TRY(CheckNotOf(file, options.baseline, option));
  }
  SP_TRY(CheckNotOf(json, options.known, "--json"));
  if (const Status apart = CheckNotOf(json, options.baseline, "--json"); !apart.ok()) {
    return apart.error().While("a run that compares less would become the next one's baseline");
  }
  SP_ASSIGN(opened, gate::Gate::Open(options));
  return *opened;
}

const std::string& NoteRefusal(const std::string& why) { return refusal = why; }

void WriteRefusal(const std::string& command, int exit_code) {
  if (!opened || refusal.empty()) return;
  // What cannot be written was said already, or is no more than this.
  (void)opened->Write(
      {.command = command, .exit_code = exit_code, .reason = refusal, .is_refused = true});
}

Result<int> Conclude(const gate::Gate& gate, gate::Outcome outcome, const std::string& text,
                     nlohmann::json document, const std::string& json) {
  const Verdict before = outcome.verdict;
  gate.Judge(outcome);
  std::string shown = Headed(outcome, before, text);
  if (gate.options().Decides()) shown += Fingerprints(outcome);
  for (const std::string& note : outcome.notes) shown += "gate: " + Printable(note) + "\n";
  AddToDocument(outcome, document);
  SP_TRY(ShowResult(shown, DumpJson(document, 2) + "\n", json));
  SP_TRY(gate.Write(outcome));
  return outcome.exit_code;
}

}  // namespace shardproof
