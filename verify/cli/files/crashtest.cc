// shardproof crashtest: what a crash at any moment of somebody else's save leaves on disk, loaded.
#include <fmt/format.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "verify/cli/files/files.h"
#include "verify/cli/files/places.h"
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
constexpr int kExitInconclusive = 3;

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
};

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

/// Rewritten in place on a terminal, at most ten times a second; silent in a log.
class ProgressLine {
 public:
  void Show(const std::string& line) {
    const auto now = std::chrono::steady_clock::now();
    const bool is_count = line.find(" of ") != std::string::npos;
    if (!is_terminal_ || (is_count && now - shown_ < std::chrono::milliseconds(100))) return;
    shown_ = now;
    std::fprintf(stderr, "\r\033[K%s ...", line.c_str());
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
    return BadInput("--path and --old-path: a command of --load decides itself what it loads");
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
    return BadInput(fmt::format("--root {}: expected a directory", options.root));
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
  ReportDirectory report;
  if (!arguments.report.empty()) SP_TRY(report.Make(arguments.report));
  SP_ASSIGN(const auto scratch, MakeScratch(options));
  std::optional<ProgressLine> line{std::in_place};
  const auto progress = [&](const std::string& text) { line->Show(text); };
  std::unique_ptr<crashtest::Loader> loader;
  if (options.loader.empty()) {
    progress("importing torch");
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
  SP_TRY(ShowResult(crashtest::CrashText(options, outcome, scripts),
                    crashtest::CrashJson(options, outcome, scripts)
                            .dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
                        "\n",
                    arguments.json));
  if (outcome.bad_count > 0) return kExitBad;
  return outcome.inconclusive.empty() ? kExitPass : kExitInconclusive;
}

void AddOptions(CLI::App& command, CrashtestArguments& arguments) {
  crashtest::Options& options = arguments.options;
  command
      .add_option("COMMAND", options.command,
                  "The save and its arguments, after --; its stdin is empty")
      ->required();
  command
      .add_option("--root", options.root,
                  "The directory that is looked at; what lies there before is the previous\n"
                  "checkpoint")
      ->required()
      ->check(NotEmpty);
  command
      .add_option("--before", arguments.before,
                  "A command that is run first, untraced; no shell reads it, as none reads\n"
                  "COMMAND")
      ->check(NotEmpty);
  command
      .add_option(
          "--load", arguments.load,
          "dcp, torch or safetensors, if not what is found there; or a command in which {}\n"
          "is the directory: what it prints, up to 16 MiB, is what it loaded, an exit code\n"
          "that is not 0 a refusal")
      ->check(NotEmpty);
  command.add_option("--path", arguments.path, "Where in --root the saved checkpoint lies")
      ->check(NotEmpty);
  command.add_option("--old-path", arguments.old_path, "Where the previous one lies, if elsewhere")
      ->check(NotEmpty);
  command.add_option("--model", arguments.models,
                     "What crashes: kill, ext4-ordered, posix, joined by commas (default: all)");
  command
      .add_option(
          "--states", options.states_max,
          "About so many are loaded: of a larger save, fewer moments are looked at at which\n"
          "the machine may stop; 0: no bound")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command
      .add_option("--combinations", options.states.combinations_max,
                  "Of losses at one moment, so many are made all; else drawn ones")
      ->capture_default_str();
  command.add_option("--points", options.states.points_max, "Moments at most")
      ->capture_default_str();
  command.add_option("--seed", options.states.seed, "Of what is drawn")->capture_default_str();
  command.add_option("--deadline", arguments.deadline_s, "Seconds that a load may take")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 86400.0));
  command
      .add_option("--save-deadline", arguments.save_deadline_s, "Seconds that the save may take")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 86400.0));
  command
      .add_option("--max-bytes", options.bytes_max,
                  "That --root may hold, and the save write; memory is about four times that")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command
      .add_option("--python", options.python, "A Python with torch, for the states to be loaded by")
      ->check(NotEmpty);
  command
      .add_option("--report", arguments.report,
                  "New directory for bad states, each with a script that shows it")
      ->check(NotEmpty);
  command
      .add_option("--scripts", options.scripts_max,
                  "So many of them; of each cause the smallest first. A number above that of the\n"
                  "bad states: all of them")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command.add_option("--json", arguments.json, "File for the result as JSON; - is stdout")
      ->check(NotEmpty);
}

}  // namespace

void AddCrashtest(CLI::App& app, int* exit_code) {
  auto arguments = std::make_shared<CrashtestArguments>();
  const Places places = FindPlaces();
  arguments->options.python = places.python;
  arguments->options.package = places.package;
  arguments->options.states.combinations_max = 64;
  arguments->options.states_max = 2000;
  CLI::App* command = app.add_subcommand(
      "crashtest", "Load from every state that a crash of a save may leave: -- COMMAND ...");
  AddOptions(*command, *arguments);
  command->positionals_at_end();
  command->footer(
      "shardproof crashtest --root ckpt --before 'python save.py 1' -- python save.py 2\n"
      "Exit codes: 0 no bad state, 1 bad states, 2 bad input or the command failed, 3 nothing can "
      "be\n"
      "said, 5 the verifier itself is broken.");
  command->callback([arguments, exit_code] {
    const auto code = CrashTest(*arguments);
    *exit_code = code.ok() ? code.value() : Refuse(code.error());
  });
}

}  // namespace shardproof
