#include "verify/cli/execute.h"

#include <fmt/format.h>

#include <filesystem>

#include "src/text/printable.h"
#include "verify/cli/command.h"
#include "verify/cli/common/ending.h"
#include "verify/cli/common/places.h"
#include "verify/engine/verification.h"
#include "verify/fault/fault.h"
#include "verify/launch/joined_launcher.h"
#include "verify/process/scratch_directory.h"
#include "verify/rank/transport_for_device.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;

constexpr auto kFollowerPatience = std::chrono::hours(24);

/// The directory that evidence and scratch files go to; a temporary one is removed at the end.
class WorkDirectory {
 public:
  static Result<std::unique_ptr<WorkDirectory>> Make(const std::string& report) {
    auto made = std::unique_ptr<WorkDirectory>(new WorkDirectory);
    if (!report.empty()) {
      std::error_code error;
      made->path_ = report + "/evidence";
      made->made_here_ = !fs::exists(report) ? report : !fs::exists(made->path_) ? made->path_ : "";
      fs::create_directories(made->path_, error);
      if (error || ::access(made->path_.c_str(), W_OK | X_OK) != 0) {
        return BadInput(fmt::format("report directory {}: cannot be written: {}", report,
                                    error ? error.message() : std::strerror(errno)));
      }
      return made;
    }
    SP_ASSIGN(made->temporary_, ScratchDirectory::Make());
    made->path_ = made->temporary_->path();
    return made;
  }
  const std::string& path() const { return path_; }
  /// Leaves nothing behind of a run that was refused.
  void Discard() const {
    std::error_code error;
    if (!made_here_.empty()) fs::remove_all(made_here_, error);
  }

 private:
  WorkDirectory() = default;
  std::string path_;
  std::string made_here_;  // the outermost directory that did not exist before
  std::unique_ptr<ScratchDirectory> temporary_;
};

/// A hang has an exit code of its own, unless a rank failed before and left the others waiting.
bool IsHang(const RunResult& result) {
  bool hang = false;
  bool lost = false;
  for (const Finding* finding : result.Findings()) {
    if (finding->property != "fault.every_rank_finishes") continue;
    hang = hang || finding->kind == "hang";
    lost = lost || finding->kind == "lost";
  }
  return hang && !lost;
}

/// The same command with its report kept: evidence that was temporary cannot be replayed.
std::string ReportCommand(const std::vector<std::string>& command_line) {
  std::string text;
  for (const std::string& word : command_line) text += ShellQuoted(word) + " ";
  return text + "--report report";
}

int Lead(const Case& test_case, const ExecuteOptions& options, Launcher& launcher) {
  if (const Status apart = CheckOutputs(test_case, options); !apart.ok()) {
    return Complain(apart.error());
  }
  const auto gate = GateOf(options, test_case.model.checkpoint);
  if (!gate.ok()) return Complain(gate.error());
  const auto subject = DeclareSubject(test_case.subject, PythonFrom(options));
  if (!subject.ok()) return Complain(subject.error());
  if (options.is_drawn && !subject.value().builds) {
    return Complain(
        BadInput(fmt::format("{} asks for no case.build, so it needs a checkpoint of its model: "
                             "expected --checkpoint DIR",
                             test_case.subject)));
  }
  if (const Status known = CheckOptions(subject.value(), test_case.options); !known.ok()) {
    return Complain(known.error());
  }
  const auto directory = WorkDirectory::Make(options.report);
  if (!directory.ok()) return Complain(directory.error());
  TellWhenEnded();
  auto verified = Verify(test_case, launcher,
                         {.subject = subject.value(),
                          .directory = directory.value()->path(),
                          .save_to = options.save_to,
                          .properties = options.properties,
                          .to_be_shown = !options.report.empty(),
                          .is_quick = options.is_quick,
                          .mesh_is_asked = options.mesh_is_asked,
                          .confirms = options.confirms,
                          .progress = ShowProgress});
  ShowProgress("");
  if (!verified.ok()) {
    directory.value()->Discard();
    return Complain(verified.error());
  }
  RunResult& result = verified.value();
  result.command_line = options.command_line;
  if (IsHang(result)) result.exit_code = kExitHang;
  result.next_command = options.report.empty()
                            ? ReportCommand(options.command_line)
                            : ShellQuoted(options.command_line.at(0)) + " replay " +
                                  ShellQuoted(result.evidence_directory);
  return Present(result, options, gate.value());
}

}  // namespace

PythonOptions PythonFrom(const ExecuteOptions& options) {
  const Places places = FindPlaces();
  return {PythonOf(options), places.package, places.digest_op};
}

int Execute(const Case& test_case, const ExecuteOptions& options) {
  if (const std::string why = WhyNoDevice(test_case.device); !why.empty()) {
    return Skip(fmt::format("device {}: {}", test_case.device, why), options, test_case.subject);
  }
  if (const std::string why = WhyCannotStrike(test_case); !why.empty()) {
    return Skip(why, options, test_case.subject);
  }
  const auto joined = JoinRanks(std::chrono::milliseconds(test_case.deadline_ms));
  if (!joined.ok()) return Complain(joined.error());
  if (!joined.value()) {
    const auto launcher = test_case.subject != kReference ? MakeSubjectLauncher(PythonFrom(options))
                          : test_case.transport == "sim"  ? MakeSimLauncher(false)
                                                          : MakeForkLauncher();
    return Lead(test_case, options, *launcher);
  }
  if (test_case.transport == "sim") {
    return Complain(
        BadInput("RANK is set, but simulated ranks are threads of one process and cannot join a "
                 "launcher's ranks: unset RANK, or use --transport gloo"));
  }
  PythonOptions python = PythonFrom(options);
  python.interface = joined.value()->interface;
  if (joined.value()->rank != 0) {
    JoinedRank rank(*joined.value(), python);
    return FollowRank0(rank, kFollowerPatience);
  }
  JoinedLauncher launcher(*joined.value(), python);
  const int exit_code = Lead(test_case, options, launcher);
  launcher.Dismiss(exit_code);
  return exit_code;
}

}  // namespace shardproof
