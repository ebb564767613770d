#include "verify/cli/common/present.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "src/text/printable.h"
#include "verify/case/names.h"
#include "verify/cli/common/app.h"
#include "verify/cli/common/ending.h"
#include "verify/cli/common/gating.h"
#include "verify/cli/common/places.h"
#include "verify/process/outputs.h"
#include "verify/report/report.h"
#include "verify/reproduce/reproduce.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;

int TerminalWidth() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 0;
}

/// What writes scripts or a program that show the findings; empty where nobody knows how to run it
/// again, as of a script that was only observed.
std::vector<std::string> ReproducerCommand(const RunResult& result, const ExecuteOptions& options,
                                           const std::string& json, const std::string& out) {
  const Places places = FindPlaces();
  if (result.test_case.subject == kReference) {
    const std::string engine = FindEngine();  // which runs it again
    if (engine.empty()) return {};
    return {places.python, places.reproduce + "/reference.py", json, out, "--command", engine};
  }
  if (!fs::exists(result.evidence_directory + "/values/order.json")) return {};
  // A script stands alone, and the user's own modules may need anything: `replay` runs it again.
  if (!result.test_case.model.factory.empty()) return {};
  return {places.python,
          places.reproduce + "/subject.py",
          json,
          result.evidence_directory,
          out,
          "--python",
          PythonOf(options)};
}

Status WriteReports(RunResult& result, const ExecuteOptions& options) {
  if (!options.report.empty()) {
    const std::string json = options.report + "/result.json";
    SP_TRY(WriteResultJson(result, json));
    const Places places = FindPlaces();
    const std::string out = options.report + "/reproducers";
    auto reproducers = options.is_quick ? std::vector<std::string>()
                                        : ReproducerCommand(result, options, json, out);
    if (options.redacts && !reproducers.empty()) reproducers.push_back("--redact");
    if (!reproducers.empty() && !result.Findings().empty()) {
      ShowProgress("writing reproducers of the findings and running them");
      SP_ASSIGN(const std::string script, WriteReproducers(reproducers, out));
      ShowProgress("");
      if (!script.empty()) {
        result.next_command = ShellQuoted(PythonOf(options)) + " " + ShellQuoted(script);
        SP_TRY(WriteResultJson(result, json));
      }
    }
    SP_TRY(WriteJUnit(result, options.report + "/junit.xml"));
    SP_TRY(WriteHtml(places.python, places.report + "/report_html.py", json,
                     result.evidence_directory, result.report_path));
  }
  if (options.json == "-") {
    fmt::print("{}\n", RunResultToJson(result).dump(2));
    return Ok();
  }
  return options.json.empty() ? Ok() : WriteResultJson(result, options.json);
}

}  // namespace

std::string PythonOf(const ExecuteOptions& options) {
  return options.python.empty() ? FindPlaces().python : options.python;
}

void ShowProgress(const std::string& line) {
  NoteProgress(line);
  if (::isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "\r\033[K%s%s", line.c_str(), line.empty() ? "" : " ...");
  std::fflush(stderr);
}

int Complain(const Error& error) {
  std::fprintf(stderr, "shardproof: %s\n", NoteRefusal(error.message).c_str());
  if (error.code == ErrorCode::kBadInput || error.code == ErrorCode::kUnsupported)
    return kExitBadInput;
  return error.code == ErrorCode::kInternal ? kExitBroken : 1;
}

Status CheckOutputs(const Case& test_case, const ExecuteOptions& options) {
  SP_TRY(CheckNotOf(options.json, test_case.model.checkpoint, "--json"));
  return CheckApart(options.report, test_case.model.checkpoint, "--report");
}

Result<gate::Gate> GateOf(const ExecuteOptions& options, const std::string& input) {
  gate::Options asked = options.gate;
  asked.made = options.report;
  return OpenGate(asked, {input}, options.json);
}

int Present(RunResult& result, const ExecuteOptions& options, const gate::Gate& gate) {
  if (!options.report.empty()) result.report_path = options.report + "/report.html";
  const std::string command = options.command_line.size() > 1 ? options.command_line[1] : "verify";
  gate::Outcome outcome = gate::OutcomeOf(result, command);
  gate.Judge(outcome);
  gate::Apply(outcome, result);
  const Status written = WriteReports(result, options);
  if (options.json != "-") {
    fmt::print("{}", TerminalReport(result, {.color = ::isatty(STDOUT_FILENO) != 0,
                                             .width = TerminalWidth(),
                                             .explain = options.explain}));
  }
  if (!written.ok()) return Complain(written.error());
  if (const Status gated = gate.Write(outcome); !gated.ok()) return Complain(gated.error());
  return result.exit_code;
}

int Skip(const std::string& why, const ExecuteOptions& options, const std::string& target) {
  fmt::print("skipped: {}\n", why);
  const auto gate = GateOf(options, "");
  if (!gate.ok()) return Complain(gate.error());
  gate::Outcome outcome{.command = options.command_line.size() > 1 ? options.command_line[1] : "",
                        .target = target,
                        .verdict = Verdict::kSkip,
                        .exit_code = kExitSkipped,
                        .reason = why};
  gate.value().Judge(outcome);
  for (const std::string& note : outcome.notes) fmt::print("gate    {}\n", Printable(note));
  if (const Status written = gate.value().Write(outcome); !written.ok()) {
    return Complain(written.error());
  }
  return outcome.exit_code;
}

void AddOutputOptions(CLI::App& command, ExecuteOptions& options) {
  command
      .add_option("--property", options.properties,
                  "Judge only this property (see 'shardproof list properties'); may be repeated")
      ->type_name("ID")
      ->group(kResults);
  command
      .add_flag("--explain", options.explain,
                "Show each property that was skipped, with the reason")
      ->group(kResults);
  command
      .add_option("--report", options.report,
                  "Write report.html, junit.xml, result.json and the evidence to this directory")
      ->check(NotEmpty)
      ->type_name("DIR")
      ->group(kResults);
  command.add_option("--json", options.json, "Write the result as JSON to this file; - is stdout")
      ->check(NotEmpty)
      ->type_name("FILE")
      ->group(kResults);
  // `report` has an option of this name, which is about what it packs.
  if (command.get_name() != "report") {
    command
        .add_flag("--redact", options.redacts,
                  "Leave values out of the Markdown reports of findings, which say what was hidden")
        ->group(kResults)
        ->needs(command.get_option("--report"));
  }
  AddGateOptions(command, options.gate);
}

}  // namespace shardproof
