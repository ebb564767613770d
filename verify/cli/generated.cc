#include "verify/cli/generated.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/text/printable.h"
#include "verify/bug/bug.h"
#include "verify/campaign/adequacy.h"
#include "verify/campaign/campaign.h"
#include "verify/campaign/campaign_text.h"
#include "verify/campaign/interruption.h"
#include "verify/campaign/shrink.h"
#include "verify/cli/command.h"
#include "verify/evidence/line_file.h"
#include "verify/fault/fault.h"
#include "verify/process/scratch_directory.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr auto kBetweenWrites = std::chrono::seconds(5);
constexpr auto kBetweenLines = std::chrono::seconds(30);

/// In memory where there is such a file system.
Result<std::unique_ptr<ScratchDirectory>> MakeScratch() {
  const char* chosen = std::getenv("TMPDIR");
  std::error_code error;
  const bool in_memory = chosen == nullptr && ::access("/dev/shm", W_OK | X_OK) == 0 &&
                         fs::space("/dev/shm", error).available > (uint64_t{256} << 20);
  return ScratchDirectory::Make(in_memory ? "/dev/shm" : "");
}

Result<std::vector<Case>> ReadCorpus(const std::string& directory) {
  std::vector<std::string> paths;
  if (directory.empty()) return std::vector<Case>();
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(directory, error)) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
  }
  if (error) return BadInput(fmt::format("--corpus {}: {}", directory, error.message()));
  std::sort(paths.begin(), paths.end());
  std::vector<Case> cases;
  for (const std::string& path : paths) {
    SP_ASSIGN(cases.emplace_back(), ReadCaseFile(path));
  }
  return cases;
}

Result<SoakOptions> OptionsFrom(const SoakArguments& arguments) {
  SoakOptions options;
  options.python = PythonFrom(arguments.execute);
  if (!arguments.subject.empty()) options.generate.subject = arguments.subject;
  SP_ASSIGN(options.subject, DeclareSubject(options.generate.subject, options.python));
  const bool reference = options.generate.subject == kReference;
  options.generate.transport = !arguments.transport.empty() ? arguments.transport
                               : reference                  ? "sim"
                                                            : "gloo";
  options.generate.world = arguments.world;
  options.generate.attributes = !options.subject.cannot.contains("identity");
  // Ranks that are processes take cores and seconds.
  if (options.generate.transport != "sim") options.generate.world_max = 4;
  options.seed = arguments.seed;
  options.first = arguments.first;
  options.cases = arguments.cases;
  options.only = arguments.only;
  if (arguments.minutes) {
    options.time = std::chrono::milliseconds(static_cast<int64_t>(*arguments.minutes * 60000));
  }
  options.keep_going = arguments.keep_going;
  options.jobs = arguments.jobs != 0 ? arguments.jobs : reference ? 0 : 1;
  options.bug = arguments.bug;
  if (!options.bug.empty()) SP_TRY(FindBug(options.bug));
  options.properties = arguments.execute.properties;
  const auto judges_faults = [](const std::string& id) {
    return id.starts_with("fault.") && id != "fault.damage_recovered";
  };
  if (options.properties.empty() ||
      std::any_of(options.properties.begin(), options.properties.end(), judges_faults)) {
    options.generate.faults = DrawnFaults();
  }
  SP_TRY(SelectProperties(options.properties));
  SP_ASSIGN(options.corpus, ReadCorpus(arguments.corpus));
  return options;
}

/// What the stream of cases follows from: a document is gone on from only by the same.
json StreamOf(const SoakOptions& options) {
  return {{"seed", options.seed},
          {"subject", options.generate.subject},
          {"transport", options.generate.transport},
          {"world", options.generate.world},
          {"bug", options.bug},
          {"properties", options.properties},
          {"first", options.first},
          {"only", options.only},
          {"torch", SHARDPROOF_TORCH_VERSION}};
}

json Document(const SoakOptions& options, const SoakSummary& summary, Verdict verdict,
              const std::string& reason) {
  return {{"schema", 1},
          {"verdict", ToString(verdict)},
          {"reason", reason},
          {"stream", StreamOf(options)},
          {"summary", SummaryToJson(summary)},
          {"versions", {{"torch", SHARDPROOF_TORCH_VERSION}}}};
}

Result<SoakSummary> GoOnFrom(const std::string& path, const SoakOptions& options) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return SoakSummary();  // nothing was done yet
  std::ostringstream text;
  text << file.rdbuf();
  const json document = json::parse(text.str(), nullptr, false);
  if (!document.is_object() || !document.contains("summary") || !document.contains("stream")) {
    return BadInput(fmt::format("{}: expected the --json file of a run of generated cases", path));
  }
  if (document["stream"] != StreamOf(options)) {
    return BadInput(fmt::format("{}: holds a run of other generated cases: expected {}, found {}",
                                path, StreamOf(options).dump(), document["stream"].dump()));
  }
  auto summary = SummaryFromJson(document["summary"]);
  if (!summary.ok()) return summary.error().While(path);
  return summary;
}

/// What was done so far can be replaced by what was done later: not what another program reads,
/// such as a pipe.
bool IsReplaced(const std::string& path) {
  std::error_code error;
  const fs::file_status there = fs::status(path, error);
  return !path.empty() && path != "-" && (!fs::exists(there) || fs::is_regular_file(there));
}

/// What a long run is to be written to is found out before it. Leaves nothing new behind.
Status CheckReportCanBeWritten(const std::string& directory) {
  if (directory.empty()) return Ok();
  std::error_code error;
  fs::path outermost;  // of what does not exist yet
  for (fs::path path = fs::absolute(directory);
       !fs::exists(path, error) && path.has_relative_path(); path = path.parent_path()) {
    outermost = path;
  }
  fs::create_directories(directory, error);
  if (!error && ::access(directory.c_str(), W_OK | X_OK) != 0)
    error = {errno, std::generic_category()};
  std::error_code unmade;
  if (!outermost.empty()) fs::remove_all(outermost, unmade);
  if (!error) return Ok();
  return BadInput(
      fmt::format("report directory {}: cannot be written: {}", directory, error.message()));
}

/// The same for a file. \param option  that names it.
Status CheckFileCanBeWritten(const char* option, const std::string& path) {
  if (path.empty() || path == "-") return Ok();
  std::error_code error;
  const fs::path folder = fs::absolute(path).parent_path();
  if (fs::is_directory(path, error)) {
    return BadInput(
        fmt::format("{} {}: expected a file to write, found a directory", option, path));
  }
  if (fs::is_directory(folder, error) && ::access(folder.c_str(), W_OK | X_OK) == 0) return Ok();
  return BadInput(fmt::format("{} {}: cannot be written: {} is not a writable directory", option,
                              path, folder.string()));
}

Status WriteDocument(const std::string& path, const json& document) {
  if (path.empty()) return Ok();
  if (path == "-") {
    fmt::print("{}\n", document.dump(1));
    return Ok();
  }
  return WriteFileAtomically(path, document.dump(1) + "\n");
}

/// How it stands: one line that is rewritten on a terminal, a line now and then in a log.
class ProgressLines {
 public:
  void Tell(const std::string& line) {
    const auto now = std::chrono::steady_clock::now();
    if (::isatty(STDERR_FILENO) != 0) {
      std::fprintf(stderr, "\r\033[K%s", line.c_str());
    } else if (now - told_ > kBetweenLines) {
      std::fprintf(stderr, "%s\n", line.c_str());
      told_ = now;
    }
    std::fflush(stderr);
  }

 private:
  std::chrono::steady_clock::time_point told_ = std::chrono::steady_clock::now();
};

/// Tells how a soak stands, and keeps its document up to date.
class Watcher {
 public:
  Watcher(const SoakOptions& options, std::string json)
      : options_(options), json_(std::move(json)) {}
  void operator()(const SoakSummary& summary) {
    const auto now = std::chrono::steady_clock::now();
    lines_.Tell(SoakProgress(summary));
    if (!IsReplaced(json_) || now - written_ < kBetweenWrites) return;
    written_ = now;
    // One that cannot be written is told at the end.
    (void)WriteDocument(json_, Document(options_, summary, Verdict::kInconclusive, "not finished"));
  }

 private:
  const SoakOptions& options_;
  std::string json_;
  ProgressLines lines_;
  std::chrono::steady_clock::time_point written_ = std::chrono::steady_clock::now();
};

void ClearProgress() {
  if (::isatty(STDERR_FILENO) != 0) std::fprintf(stderr, "\r\033[K");
}

std::string SizeText(const Case& c) {
  const std::string model = c.model.checkpoint.empty() ? Plural(c.model.tensors.size(), "tensor")
                                                       : "checkpoint " + c.model.checkpoint;
  return fmt::format("{}, {}", Plural(static_cast<uint64_t>(c.WorldSize()), "rank"), model);
}

struct Smallest {
  Signature signature;
  Shrunk shrunk;
};

/// \returns nothing if the case, run in processes of its own, has no finding, or none of
/// `property`.
Result<std::optional<Smallest>> FindSmallest(const Case& failing, const std::string& property,
                                             uint64_t runs_max, const SoakOptions& options) {
  CaseRunner isolated(options, options.directory + "/isolated", true);
  const CaseOutcome outcome = isolated.Run(failing);
  for (const FindingOutcome& finding : outcome.findings) {
    if (!property.empty() && finding.property != property) continue;
    Smallest smallest{.signature = SignatureOf(finding), .shrunk = {}};
    SoakOptions told = options;
    told.shrink_progress = [lines = ProgressLines()](const Case& smallest_yet,
                                                     uint64_t runs) mutable {
      lines.Tell(
          fmt::format("shrinking: {} after {}", SizeText(smallest_yet), Plural(runs, "run")));
    };
    auto shrunk = Shrink(failing, smallest.signature, runs_max, told);
    ClearProgress();
    if (!shrunk.ok()) return shrunk.error();
    smallest.shrunk = std::move(shrunk.value());
    return std::optional(std::move(smallest));
  }
  return std::optional<Smallest>();
}

const char* WhyItEnded(const Shrunk& shrunk) {
  if (shrunk.is_smallest) return "no simpler case fails so";
  return Interruption::WasSeen() ? "interrupted" : "the limit on runs was reached";
}

/// Shrinks the first failing case, and shows the smallest as `verify` would.
void ShowFailure(const SoakArguments& arguments, const SoakOptions& options,
                 const FailedCase& failure) {
  const uint64_t index = failure.outcome.index;
  fmt::print("case {} of seed {} fails ({})", index, options.seed, SizeText(failure.test_case));
  if (failure.outcome.findings.empty()) {
    fmt::print(": {}\n", failure.outcome.reason);
    return;
  }
  fmt::print(": {}\n", failure.outcome.findings[0].message);
  std::fflush(stdout);
  const uint64_t runs_max =
      arguments.shrink_runs.value_or(ShrinkRunsFor(failure.test_case.subject));
  const auto smallest = FindSmallest(failure.test_case, "", runs_max, options);
  if (!smallest.ok()) {
    Complain(smallest.error());
    return;
  }
  if (!smallest.value()) {
    fmt::print(
        "passed when re-run in separate processes: the failure depends on what ran before it in "
        "its process, or on chance\n");
    return;
  }
  const Shrunk& shrunk = smallest.value()->shrunk;
  fmt::print("shrunk to {} in {} runs ({}; {}):\n", SizeText(shrunk.test_case), shrunk.runs,
             WhyItEnded(shrunk), smallest.value()->signature.Text());
  std::fflush(stdout);
  ExecuteOptions execute = arguments.execute;
  execute.json.clear();
  execute.gate = {};  // it is of all cases
  if (!execute.report.empty()) {
    std::error_code error;
    fs::create_directories(execute.report, error);
    const std::string path = execute.report + "/case.json";
    if (const Status written =
            WriteFileAtomically(path, CaseToJson(shrunk.test_case).dump(1) + "\n");
        !written.ok()) {
      Complain(written.error());
    }
  }
  if (Execute(shrunk.test_case, execute) == 0) {
    fmt::print("passed when re-run: the failure ({}) is not deterministic\n",
               smallest.value()->signature.Text());
  }
  if (!execute.report.empty()) return;
  fmt::print("the smallest case, for `shardproof replay FILE`:\n{}\n",
             CaseToJson(shrunk.test_case).dump());
}

Result<int> SoakOf(const SoakArguments& arguments) {
  SP_ASSIGN(SoakOptions options, OptionsFrom(arguments));
  SP_ASSIGN(const gate::Gate gate, GateOf(arguments.execute, ""));
  SP_ASSIGN(const auto scratch, MakeScratch());
  options.directory = scratch->path();
  SoakSummary summary;
  if (arguments.resume) {
    SP_ASSIGN(summary, GoOnFrom(arguments.execute.json, options));
  }
  SP_TRY(CheckReportCanBeWritten(arguments.execute.report));
  SP_TRY(CheckFileCanBeWritten("--json", arguments.execute.json));
  if (IsReplaced(arguments.execute.json)) {
    SP_TRY(WriteDocument(arguments.execute.json,
                         Document(options, summary, Verdict::kInconclusive, "not finished")));
  }
  options.progress = Watcher(options, arguments.execute.json);
  fmt::print("shardproof: generated cases of seed {}{}, {}, transport {}{}, torch {}\n",
             options.seed, options.first == 0 ? "" : fmt::format(" from {} on", options.first),
             options.subject.name, options.generate.transport,
             options.bug.empty() ? "" : ", planted bug " + options.bug, SHARDPROOF_TORCH_VERSION);
  std::fflush(stdout);
  SP_ASSIGN(const SoakEnd end, Soak(options, summary));
  ClearProgress();
  const Verdict verdict = SoakVerdict(summary, end);
  const Status written = WriteDocument(
      arguments.execute.json, Document(options, summary, verdict, SoakReason(summary, end)));
  SP_TRY(Status(written));
  gate::Outcome outcome = OutcomeOfSoak(options, summary, end, arguments.execute.report);
  gate.Judge(outcome);
  SP_TRY(gate.Write(outcome));
  if (arguments.execute.json == "-") return outcome.exit_code;
  // A failure is shown first; else the verdict is the last line.
  const std::string tables = SoakTables(summary, end, arguments.execute.explain);
  const std::string line = SoakLine(summary, end);
  fmt::print("{}", summary.failures.empty() ? tables + line : line);
  std::fflush(stdout);
  if (!summary.failures.empty()) {
    ShowFailure(arguments, options, summary.failures.front());
    fmt::print("{}", tables);
  } else if (summary.failures.empty() && fs::exists(arguments.execute.report + "/result.json")) {
    fmt::print("{} holds the report of an earlier run; nothing failed in this one\n",
               arguments.execute.report);
  }
  for (const std::string& note : outcome.notes) fmt::print("gate    {}\n", Printable(note));
  if (outcome.verdict != verdict) fmt::print("{}\n", ToString(outcome.verdict));
  return outcome.exit_code;
}

}  // namespace

int RunSoak(const SoakArguments& arguments) {
  if (arguments.resume && (arguments.execute.json.empty() || arguments.execute.json == "-")) {
    return Complain(BadInput("--resume: expected --json FILE with it, the file to continue from"));
  }
  const auto code = SoakOf(arguments);
  return code.ok() ? code.value() : Complain(code.error());
}

namespace {

Result<std::vector<PlantedBug>> BugsNamed(const std::string& ids) {
  if (ids == "all") {
    if (AllBugs().empty()) return BadInput(fmt::format("--bugs: {}", kWithoutBugs));
    return AllBugs();
  }
  std::vector<PlantedBug> bugs;
  std::istringstream list(ids);
  for (std::string id; std::getline(list, id, ',');) {
    SP_ASSIGN(bugs.emplace_back(), FindBug(id));
  }
  return bugs;
}

Status WriteSmallest(const BugAdequacy& bug, const std::string& directory) {
  if (directory.empty() || !bug.smallest) return Ok();
  std::error_code error;
  fs::create_directories(directory, error);
  return WriteFileAtomically(fmt::format("{}/{}.json", directory, bug.bug),
                             CaseToJson(bug.smallest->test_case).dump(1) + "\n");
}

Result<int> AdequacyOf(const SoakArguments& arguments) {
  SP_ASSIGN(const auto bugs, BugsNamed(arguments.bug));
  AdequacyOptions options;
  SoakArguments of_all = arguments;
  of_all.bug.clear();
  SP_ASSIGN(options.soak, OptionsFrom(of_all));
  SP_ASSIGN(const auto scratch, MakeScratch());
  options.soak.directory = scratch->path();
  options.cases_max = arguments.cases.value_or(options.cases_max);
  options.shrink_runs = arguments.shrink_runs.value_or(options.shrink_runs);
  SP_TRY(CheckReportCanBeWritten(arguments.execute.report));
  SP_TRY(CheckFileCanBeWritten("--json", arguments.execute.json));
  fmt::print("shardproof: {} in generated cases of seed {}, at most {} each, torch {}\n",
             Plural(bugs.size(), "planted bug"), arguments.seed, options.cases_max,
             SHARDPROOF_TORCH_VERSION);
  const auto document = [&](const std::vector<BugAdequacy>& measured) {
    return json{{"schema", 1},
                {"seed", arguments.seed},
                {"bugs_left", bugs.size() - measured.size()},
                {"bugs", AdequacyToJson(measured)},
                {"versions", {{"torch", SHARDPROOF_TORCH_VERSION}}}};
  };
  std::vector<BugAdequacy> measured;
  if (IsReplaced(arguments.execute.json))
    SP_TRY(WriteDocument(arguments.execute.json, document(measured)));
  bool all = true;
  for (const PlantedBug& bug : bugs) {
    std::fflush(stdout);
    SP_ASSIGN(auto one, MeasureBug(bug, options));
    if (!one) break;
    measured.push_back(std::move(*one));
    fmt::print("{}\n", AdequacyLine(measured.back()));
    SP_TRY(WriteSmallest(measured.back(), arguments.execute.report));
    all = all && measured.back().IsCaught();
  }
  fmt::print("{}", AdequacyTable(measured));
  std::fflush(stdout);
  SP_TRY(WriteDocument(arguments.execute.json, document(measured)));
  if (!arguments.execute.report.empty()) {
    fmt::print(
        "the smallest cases are in {0}/ID.json; `shardproof replay {0}/ID.json --report DIR` "
        "writes "
        "reproducers\n",
        arguments.execute.report);
  }
  if (!all || measured.size() == bugs.size()) return all ? 0 : 1;
  fmt::print("inconclusive: the time limit was reached; {} of {} were not planted\n",
             bugs.size() - measured.size(), Plural(bugs.size(), "bug"));
  return ExitCodeOf(Verdict::kInconclusive);
}

}  // namespace

int RunAdequacy(const SoakArguments& arguments) {
  const auto code = AdequacyOf(arguments);
  return code.ok() ? code.value() : Complain(code.error());
}

int RunShrink(const Case& failing, const std::string& property, std::optional<uint64_t> runs_max,
              const std::string& out, const ExecuteOptions& execute) {
  if (!property.empty()) {
    if (const auto known = SelectProperties({property}); !known.ok())
      return Complain(known.error());
  }
  if (const Status can = CheckFileCanBeWritten("--out", out); !can.ok())
    return Complain(can.error());
  SoakOptions options;
  options.python = PythonFrom(execute);
  const auto subject = DeclareSubject(failing.subject, options.python);
  if (!subject.ok()) return Complain(subject.error());
  options.subject = subject.value();
  const auto scratch = MakeScratch();
  if (!scratch.ok()) return Complain(scratch.error());
  options.directory = scratch.value()->path();
  const auto smallest =
      FindSmallest(failing, property, runs_max.value_or(ShrinkRunsFor(failing.subject)), options);
  if (!smallest.ok()) return Complain(smallest.error());
  if (!smallest.value()) {
    return Complain(BadInput(property.empty()
                                 ? "the case does not fail, so there is nothing to shrink"
                                 : "the case has no finding of " + property));
  }
  const Shrunk& shrunk = smallest.value()->shrunk;
  std::fprintf(stderr, "%s to %s in %lu runs (%s; %s)\n", SizeText(failing).c_str(),
               SizeText(shrunk.test_case).c_str(), static_cast<unsigned long>(shrunk.runs),
               WhyItEnded(shrunk), smallest.value()->signature.Text().c_str());
  const std::string text = CaseToJson(shrunk.test_case).dump(1) + "\n";
  if (out.empty()) {
    fmt::print("{}", text);
    return 0;
  }
  const Status written = WriteFileAtomically(out, text);
  return written.ok() ? 0 : Complain(written.error());
}

}  // namespace shardproof
