// shardproof crashtest: what a crash at any moment of somebody else's save leaves on disk, loaded.
#include <fmt/format.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "verify/cli/common/app.h"
#include "verify/cli/common/gating.h"
#include "verify/cli/common/places.h"
#include "verify/cli/common/present.h"
#include "verify/cli/files/files.h"
#include "verify/cli/files/outcomes.h"
#include "verify/crashtest/crash_text.h"
#include "verify/crashtest/run.h"
#include "verify/crashtest/scripts.h"
#include "verify/process/outputs.h"
#include "verify/process/scratch_directory.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;

constexpr int kExitPass = 0;
constexpr int kExitBad = 1;

struct CrashtestArguments {
  crashtest::Options options;
  std::string load;
  std::string models;
  std::string before;
  std::string path;
  std::string old_path;
  std::string report;
  std::string json;
  double deadline_s = 60;
  double save_deadline_s = 600;
  gate::Options gate;
};

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

/// Rewritten in place on a terminal, at most ten times a second; silent in a log.
class ProgressLine {
 public:
  void Show(const crashtest::ProgressNote& note) {
    const auto now = std::chrono::steady_clock::now();
    if (!is_terminal_ || (note.is_count && now - shown_ < std::chrono::milliseconds(100))) return;
    shown_ = now;
    std::fprintf(stderr, "\r\033[K%s ...", note.line.c_str());
    std::fflush(stderr);
  }
  ~ProgressLine() {
    if (!is_terminal_) return;
    std::fprintf(stderr, "\r\033[K");
    std::fflush(stderr);
  }

 private:
  const bool is_terminal_ = ::isatty(STDERR_FILENO) != 0;
  std::chrono::steady_clock::time_point shown_;
};

/// Words as a shell would split them, with nothing done to them.
std::vector<std::string> Split(const std::string& text) { return CLI::detail::split_up(text); }

/// The options, as they are meant. \error kBadInput
Status Understand(CrashtestArguments& arguments) {
  crashtest::Options& options = arguments.options;
  if (arguments.load == "dcp" || arguments.load == "torch" || arguments.load == "safetensors") {
    options.kind = arguments.load;
  } else if (arguments.load.find("{}") != std::string::npos) {
    options.loader = Split(arguments.load);
  } else if (!arguments.load.empty()) {
    return BadInput(fmt::format(
        "--load {}: expected dcp, torch, safetensors, or a command in which {{}} is the directory",
        arguments.load));
  }
  if (!options.loader.empty() && !(arguments.path + arguments.old_path).empty()) {
    return BadInput(
        "--path and --old-path cannot be combined with a command of --load, which decides itself "
        "what "
        "it loads");
  }
  if (!arguments.path.empty()) options.path = arguments.path;
  if (!arguments.old_path.empty()) options.old_path = arguments.old_path;
  options.before = Split(arguments.before);
  options.deadline = Milliseconds(arguments.deadline_s);
  options.save_deadline = Milliseconds(arguments.save_deadline_s);
  if (!arguments.models.empty()) options.states.models.clear();
  for (size_t at = 0; at < arguments.models.size();) {
    const size_t end = std::min(arguments.models.find(',', at), arguments.models.size());
    SP_ASSIGN(const auto model, crash::ParseCrashModel(arguments.models.substr(at, end - at)));
    options.states.models.push_back(model);
    at = end + 1;
  }
  std::error_code error;
  if (!fs::is_directory(options.root, error)) {
    const char* what = fs::exists(options.root, error) ? "expected a directory, found a file"
                                                       : "there is no such directory: create it";
    return BadInput(fmt::format("--root {}: {}", options.root, what));
  }
  if (!arguments.report.empty()) SP_TRY(CheckApart(arguments.report, options.root, "--report"));
  return CheckNotOf(arguments.json, options.root, "--json");
}

/// In memory where that can be, since every state is written out.
Result<std::unique_ptr<ScratchDirectory>> MakeScratch(const crashtest::Options& options) {
  struct statfs memory {};
  const auto needed = static_cast<uint64_t>(options.bytes_max);
  if (::statfs("/dev/shm", &memory) == 0 && memory.f_bavail * memory.f_bsize > needed) {
    auto made = ScratchDirectory::Make("/dev/shm");
    if (made.ok()) return made;
  }
  return ScratchDirectory::Make();
}

/// Made before the save is run, and gone again if nothing comes into it.
class ReportDirectory {
 public:
  Status Make(const std::string& path) {
    std::error_code error;
    path_ = path;
    fs::create_directories(path, error);
    if (error) return BadInput(fmt::format("--report {}: {}", path, error.message()));
    if (fs::is_empty(path, error)) return Ok();
    return BadInput(fmt::format("--report {}: expected an empty directory, or none yet", path));
  }
  ~ReportDirectory() {
    std::error_code is_not_empty;
    if (!path_.empty()) fs::remove(path_, is_not_empty);
  }

 private:
  std::string path_;
};

Result<int> CrashTest(CrashtestArguments& arguments) {
  SP_TRY(Understand(arguments));
  const crashtest::Options& options = arguments.options;
  arguments.gate.made = arguments.report;
  SP_ASSIGN(const gate::Gate gate, OpenGate(arguments.gate, {options.root}, arguments.json));
  ReportDirectory report;
  if (!arguments.report.empty()) SP_TRY(report.Make(arguments.report));
  SP_ASSIGN(const auto scratch, MakeScratch(options));
  std::optional<ProgressLine> line{std::in_place};
  const auto progress = [&](const crashtest::ProgressNote& note) { line->Show(note); };
  std::unique_ptr<crashtest::Loader> loader;
  if (options.loader.empty()) {
    progress({"importing torch"});
    SP_ASSIGN(loader,
              crashtest::MakePythonLoader(options.python, options.package, options.deadline));
  } else {
    loader = crashtest::MakeCommandLoader(options.loader, options.deadline);
  }
  SP_ASSIGN(const crashtest::Outcome outcome,
            crashtest::TestSave(options, *loader, scratch->path(), progress));
  std::vector<crashtest::Script> scripts;
  if (!arguments.report.empty() && outcome.bad_count > 0) {
    SP_ASSIGN(scripts, crashtest::WriteScripts(options, outcome, arguments.report, progress));
  }
  line.reset();
  const int exit_code = outcome.bad_count > 0          ? kExitBad
                        : outcome.inconclusive.empty() ? kExitPass
                                                       : kExitInconclusive;
  gate::Outcome gated = OutcomeOfCrashtest(outcome, exit_code);
  gated.report = arguments.report;
  return Conclude(gate, std::move(gated), crashtest::CrashText(options, outcome, scripts),
                  crashtest::CrashJson(options, outcome, scripts), arguments.json);
}

constexpr const char* kSave = "The save";
constexpr const char* kLoad = "The load of each state";
constexpr const char* kBounds = "Which states";

void AddSaveOptions(CLI::App& command, CrashtestArguments& arguments) {
  crashtest::Options& options = arguments.options;
  command
      .add_option("--root", options.root,
                  "Directory that the save writes to; what it contains before is the previous "
                  "checkpoint")
      ->required()
      ->check(NotEmpty)
      ->type_name("DIR")
      ->group(kSave);
  command
      .add_option("--before", arguments.before,
                  "Run this command first, untraced, to write the previous checkpoint. Neither it "
                  "nor COMMAND is passed to a shell")
      ->check(NotEmpty)
      ->type_name("COMMAND")
      ->group(kSave);
  command.add_option("--save-deadline", arguments.save_deadline_s, "Time limit of the save")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 86400.0))
      ->type_name("SECONDS")
      ->group(kSave);
  command
      .add_option("--max-bytes", options.bytes_max,
                  "Limit on the size of --root and on what the save writes; memory use is about "
                  "four times that")
      ->capture_default_str()
      ->check(CLI::PositiveNumber)
      ->type_name("BYTES")
      ->group(kSave);
  command
      .add_option("--load", arguments.load,
                  "How a state is loaded: dcp, torch or safetensors (default: the format that is "
                  "found), or a command in which {} is replaced by the directory. What the command "
                  "prints, up to 16 MiB, is what it loaded; a nonzero exit code is a refusal")
      ->check(NotEmpty)
      ->type_name("HOW")
      ->group(kLoad);
  command.add_option("--path", arguments.path, "Path of the saved checkpoint within --root")
      ->check(NotEmpty)
      ->type_name("PATH")
      ->group(kLoad);
  command
      .add_option("--old-path", arguments.old_path,
                  "Path of the previous checkpoint within --root, if it differs")
      ->check(NotEmpty)
      ->type_name("PATH")
      ->group(kLoad);
  command.add_option("--deadline", arguments.deadline_s, "Time limit of one load")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 86400.0))
      ->type_name("SECONDS")
      ->group(kLoad);
  command.add_option("--python", options.python, "Python interpreter, with torch, that loads")
      ->check(NotEmpty)
      ->type_name("FILE")
      ->group(kLoad);
}

void AddBoundOptions(CLI::App& command, crashtest::Options& options) {
  command
      .add_option("--states", options.states_max,
                  "Load about N crash states; for a large save, sample the crash points (0: no "
                  "limit)")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->type_name("N")
      ->group(kBounds);
  command
      .add_option("--combinations", options.states.combinations_max,
                  "Enumerate up to N combinations of lost operations per crash point; beyond N, "
                  "sample")
      ->capture_default_str()
      ->type_name("N")
      ->group(kBounds);
  command.add_option("--points", options.states.points_max, "Look at no more than N crash points")
      ->capture_default_str()
      ->type_name("N")
      ->group(kBounds);
  command.add_option("--seed", options.states.seed, "Seed of the samples")
      ->capture_default_str()
      ->type_name("N")
      ->group(kBounds);
}

void AddOutputs(CLI::App& command, CrashtestArguments& arguments) {
  command
      .add_option("--report", arguments.report,
                  "Write the bad states, each with a script that shows it, to this new directory")
      ->check(NotEmpty)
      ->type_name("DIR")
      ->group(kResults);
  command
      .add_option("--scripts", arguments.options.scripts_max,
                  "Write at most N scripts, the smallest state of each cause first")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->type_name("N")
      ->group(kResults);
  command
      .add_option("--json", arguments.json, "Write the result as JSON to this file; - is stdout")
      ->check(NotEmpty)
      ->type_name("FILE")
      ->group(kResults);
}

void AddOptions(CLI::App& command, CrashtestArguments& arguments) {
  crashtest::Options& options = arguments.options;
  command
      .add_option("COMMAND", options.command,
                  "The command that saves, and its arguments, after --; its stdin is empty")
      ->required();
  AddSaveOptions(command, arguments);
  command
      .add_option("--model", arguments.models,
                  "What crashes: kill (the processes), ext4-ordered or posix (the machine, on ext4 "
                  "or on any file system), joined by commas (default: all)")
      ->type_name("MODELS")
      ->group(kBounds);
  AddBoundOptions(command, options);
  AddOutputs(command, arguments);
  AddGateOptions(command, arguments.gate);
}

}  // namespace

void AddCrashtest(CLI::App& app, int* exit_code) {
  auto arguments = std::make_shared<CrashtestArguments>();
  const Places places = FindPlaces();
  arguments->options.python = places.python;
  arguments->options.package = places.package;
  arguments->options.states.combinations_max = 64;
  arguments->options.states_max = 2000;
  CLI::App* command = AddFileCommand(app, "crashtest");
  AddOptions(*command, *arguments);
  command->positionals_at_end();
  command->footer(
      "Example:\n"
      "  shardproof crashtest --root ckpt --before 'python save.py 1' -- python save.py 2\n"
      "Exit codes: 0 no bad state, 1 bad states, 2 bad input or the command failed, 3 "
      "inconclusive,\n"
      "5 the verifier itself is broken.");
  command->callback([arguments, exit_code] {
    const auto code = CrashTest(*arguments);
    *exit_code = code.ok() ? code.value() : Refuse(code.error());
  });
}

}  // namespace shardproof
