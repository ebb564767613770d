// shardproof report: judges evidence that is there already, such as that of a script which calls
// shardproof.observe, or of an earlier run.
#include "verify/cli/common/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "src/text/printable.h"
#include "verify/case/names.h"
#include "verify/cli/common/app.h"
#include "verify/cli/common/factory.h"
#include "verify/cli/common/places.h"
#include "verify/evidence/reader.h"
#include "verify/oracle/twin.h"
#include "verify/process/program.h"
#include "verify/verdict/property.h"

namespace shardproof {
namespace {

constexpr auto kBundleDeadline = std::chrono::minutes(10);

/// What the files say of the model that was observed, and its plain twin, if somebody builds one.
Result<OracleRecord> ConsultAbout(Case test_case, const ExecuteOptions& options,
                                  const ReportParts& parts) {
  const std::string checkpoint = test_case.model.checkpoint;
  const auto by_hand = oracle::DeclareModel(test_case);
  test_case.subject.clear();  // a script of one's own, which runs as it is imported
  const auto twin = parts.run_twin(test_case, checkpoint, options);
  if (twin.ok()) return oracle::ConsultTwin(test_case, checkpoint, {}, twin.value());
  OracleRecord record;
  if (by_hand.ok()) {
    SP_ASSIGN(record, oracle::Consult(test_case, checkpoint, {}));
  } else {
    record.source.error = "what the model must be is not known: " + twin.error().message;
  }
  record.twin = TwinOracle{.why_none = twin.error().message};
  return record;
}

/// The evidence, with what the checkpoint's files say if it has not been written down beside it.
Result<Evidence> EvidenceOf(const std::string& path, const ExecuteOptions& options,
                            const std::string& factory, const ReportParts& parts) {
  namespace fs = std::filesystem;
  SP_ASSIGN(const std::string directory, FindEvidence(path));
  SP_ASSIGN(Evidence evidence, ReadEvidence(directory));
  if (!factory.empty()) evidence.test_case.model.factory = factory;
  const std::string& checkpoint = evidence.test_case.model.checkpoint;
  if (fs::exists(directory + "/oracle.json") || checkpoint.empty()) return evidence;
  if (!fs::exists(checkpoint)) {
    evidence.oracle.source.error =
        checkpoint == kNoCheckpoint
            ? "the job named no checkpoint: shardproof.observe takes checkpoint=DIR"
            : fmt::format("checkpoint {}: expected a directory, found none", checkpoint);
    return evidence;
  }
  SP_ASSIGN(evidence.oracle, ConsultAbout(evidence.test_case, options, parts));
  return evidence;
}

int RunReport(const std::string& path, const ExecuteOptions& options, const std::string& factory,
              const ReportParts& parts) {
  const auto evidence = EvidenceOf(path, options, factory, parts);
  if (!evidence.ok()) return Complain(evidence.error());
  if (const auto known = SelectProperties(options.properties); !known.ok()) {
    return Complain(known.error());
  }
  if (const Status apart = CheckOutputs(evidence.value().test_case, options); !apart.ok()) {
    return Complain(apart.error());
  }
  const auto gate = GateOf(options, evidence.value().test_case.model.checkpoint);
  if (!gate.ok()) return Complain(gate.error());
  RunResult result =
      MakeRunResult(evidence.value(), Judge(evidence.value(), options.properties), path);
  result.faults = parts.describe_faults(result.test_case);
  result.command_line = options.command_line;
  result.next_command.clear();
  if (!options.report.empty()) {
    std::error_code error;
    std::filesystem::create_directories(options.report, error);
    if (error) {
      return Complain(BadInput(fmt::format("report directory {}: cannot be created: {}",
                                           options.report, error.message())));
    }
  }
  return Present(result, options, gate.value());
}

/// Whether a trainer or an engine wrote of its syncs there, and no job left evidence.
bool HoldsLogsOfSyncs(const std::string& path) {
  namespace fs = std::filesystem;
  const auto is_log = [](const fs::path& file) {
    constexpr std::string_view kSuffix = ".syncs.jsonl";
    const std::string name = file.filename().string();
    return name.size() >= kSuffix.size() &&
           std::string_view(name).substr(name.size() - kSuffix.size()) == kSuffix;
  };
  std::error_code error;
  if (!fs::is_directory(path, error)) return is_log(path);
  if (FindEvidence(path).ok()) return false;
  const auto files = fs::directory_iterator(path, error);
  return !error && std::any_of(begin(files), end(files), is_log);
}

/// Packs the report in `path` for somebody else.
int RunBundle(const std::string& path, const std::string& out, bool redact) {
  const Places places = FindPlaces();
  std::vector<std::string> command = {places.python, places.report + "/bundle.py", path, out};
  if (redact) command.push_back("--redact");
  const auto end = RunProgram(command, kBundleDeadline);
  if (!end.ok()) return Complain(end.error().While("bundle " + out));
  if (end.value().ok()) {
    fmt::print("{}\n", out);
    return 0;
  }
  std::string line = end.value().error_tail.substr(0, end.value().error_tail.find('\n'));
  return Complain(BadInput(fmt::format("bundle {}: {}", out, Printable(line))));
}

}  // namespace

ReportParts NoPartsOfReport(const std::string& why_none) {
  return {.run_twin = [why_none](const Case&, const std::string&, const ExecuteOptions&)
              -> Result<oracle::Twin> { return Unsupported(why_none); },
          .describe_faults =
              [](const Case& test_case) {
                std::vector<std::string> words;
                for (const FaultCase& fault : test_case.faults) {
                  words.push_back(fmt::format("{} at {}", fault.id, fault.where));
                }
                return words;
              }};
}

void AddReport(CLI::App& app, const std::vector<std::string>& command_line,
               const ReportParts& parts, int* exit_code) {
  struct Arguments {
    std::string path;
    std::string bundle;
    std::string factory;
    bool redact = false;
    ExecuteOptions execute;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("report", "Judge the evidence that a job or an earlier run left");
  command->group(kJobDoor);
  command
      ->add_option("DIR", arguments->path,
                   "Directory that shardproof.observe wrote, one of --report, or the logs of a "
                   "trainer's and engines' syncs")
      ->required();
  CLI::Option* bundle =
      command
          ->add_option("--bundle", arguments->bundle,
                       "Pack the report in DIR, its evidence and its reproducers into this .tar.gz")
          ->check(NotEmpty)
          ->type_name("FILE");
  command
      ->add_flag("--redact", arguments->redact,
                 "Leave every value out of the bundle; names, shapes and digests stay")
      ->needs(bundle);
  command
      ->add_option("--model", arguments->factory,
                   "Function that returns the observed model as an nn.Module, if no config.json of "
                   "its checkpoint describes it")
      ->check(IsFactory)
      ->type_name("FILE.py:FUNCTION");
  command
      ->add_option("--python", arguments->execute.python,
                   "Python interpreter of the job's environment; it builds the model once more in "
                   "one process, as the reference")
      ->type_name("FILE");
  AddOutputOptions(*command, arguments->execute);
  command->footer(
      "Examples:\n"
      "  shardproof report evidence --report out\n"
      "  shardproof report out --bundle out.tar.gz --redact\n" +
      std::string(kExitCodesHelp));
  // What is packed was judged.
  for (const char* judging :
       {"--property", "--explain", "--report", "--json", "--summary", "--report-url", "--known",
        "--min-comparisons", "--baseline", "--prom"}) {
    bundle->excludes(command->get_option(judging));
  }
  command->callback([arguments, command_line, parts, exit_code] {
    if (HoldsLogsOfSyncs(arguments->path)) {
      *exit_code = BecomePython("syncs", {command_line.begin() + 2, command_line.end()});
      return;
    }
    arguments->execute.command_line = command_line;
    *exit_code = arguments->bundle.empty()
                     ? RunReport(arguments->path, arguments->execute,
                                 AbsoluteFactory(arguments->factory), parts)
                     : RunBundle(arguments->path, arguments->bundle, arguments->redact);
  });
}

}  // namespace shardproof
