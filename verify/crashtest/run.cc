#include "verify/crashtest/run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <unordered_set>

#include "verify/crash_states/traced.h"
#include "verify/crashtest/found.h"
#include "verify/process/program.h"
#include "verify/trace/tracer.h"

namespace shardproof::crashtest {
namespace {

namespace fs = std::filesystem;
using crash::Disk;
using crash::Loaded;
using crash::LoadOutcome;
using crash::Wrong;

constexpr int64_t kBadKept = 200000;
constexpr size_t kTailBytes = 4096;

/// What a program says, of which the end is kept.
class SaidFile {
 public:
  SaidFile() : file_(::memfd_create("shardproof-said", MFD_CLOEXEC)) {}
  SaidFile(const SaidFile&) = delete;
  SaidFile& operator=(const SaidFile&) = delete;
  ~SaidFile() { ::close(file_); }
  int get() const { return file_; }
  std::string Tail() const {
    const off_t size = ::lseek(file_, 0, SEEK_END);
    std::string text(std::min<size_t>(size < 0 ? 0 : static_cast<size_t>(size), kTailBytes), '\0');
    const ssize_t got =
        ::pread(file_, text.data(), text.size(), size - static_cast<off_t>(text.size()));
    text.resize(got < 0 ? 0 : static_cast<size_t>(got));
    return text;
  }

 private:
  int file_;
};

/// `root` in memory. \error kUnsupported if it holds more than is looked at.
Result<Disk> ReadRoot(const Options& options) {
  int64_t bytes = 0;
  std::error_code error;
  fs::recursive_directory_iterator entry(options.root, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code no_file;
    const auto size = entry->file_size(no_file);
    if (!no_file && !entry->is_symlink(no_file)) bytes += static_cast<int64_t>(size);
  }
  if (error) return BadInput(fmt::format("--root {}: {}", options.root, error.message()));
  if (bytes > options.bytes_max) {
    return Unsupported(fmt::format("--root {}: expected at most {} bytes (--max-bytes), found {}",
                                   options.root, options.bytes_max, bytes));
  }
  return Disk::Read(options.root);
}

Error CommandFailed(const std::string& what, const std::string& how, const std::string& said) {
  const std::string last = LastLine(said);
  return BadInput(
      fmt::format("{}: expected exit 0, found {}{}{}", what, how, last.empty() ? "" : ": ", last));
}

Status RunBefore(const Options& options) {
  if (options.before.empty()) return Ok();
  const auto end = RunProgram(options.before, options.save_deadline);
  if (!end.ok()) return BadInput("--before: " + end.error().message);
  if (end.value().ok()) return Ok();
  return CommandFailed("--before", end.value().how, end.value().error_tail);
}

/// Runs the save, and records it.
Status RunSave(const Options& options, Outcome& outcome) {
  SP_ASSIGN(crash::TracedSave save, crash::TracedSave::Make(options.root, options.bytes_max));
  const SaidFile said;
  SP_ASSIGN(const trace::Outcome ended, trace::RunTraced({.words = options.command,
                                                          .calls = crash::TracedSave::Calls(),
                                                          .out = said.get(),
                                                          .err = said.get(),
                                                          .deadline = options.save_deadline},
                                                         save));
  outcome.notices.assign(save.notices().begin(), save.notices().end());
  if (ended.left_behind > 0) {
    outcome.notices.push_back(
        ended.left_behind == 1
            ? "a process was still running after the command ended, and was killed"
            : "processes were still running after the command ended, and were killed");
  }
  // What could not be recorded is why it was ended.
  auto operations = save.Operations(outcome.before);
  if (!operations.ok() && WIFSIGNALED(ended.wait_status) && ended.in_time) {
    return operations.error();
  }
  if (!ended.in_time) {
    return CommandFailed("the command", NoEndWithin(options.save_deadline), said.Tail());
  }
  if (ended.wait_status != 0) {
    return CommandFailed("the command", HowItEnded(ended.wait_status), said.Tail());
  }
  if (!operations.ok()) return operations.error();
  outcome.operations = std::move(operations).value();
  return Ok();
}

std::string Places(const std::vector<What>& found) {
  std::vector<std::string> places;
  for (const What& what : found) places.push_back(what.path.empty() ? "." : what.path);
  return fmt::format("{}", fmt::join(places, ", "));
}

Result<What> TheOne(const std::vector<What>& found, const std::string& path,
                    const std::string& option, const std::string& when) {
  const std::vector<What> at = At(found, path);
  if (!at.empty()) return at.front();
  return BadInput(fmt::format("{} {}: expected a checkpoint there {} the command, found {}", option,
                              path, when, found.empty() ? "none" : Places(found)));
}

/// Files of one directory, of which the command has only added some: these are what it saves, and
/// those that it left alone what was there before. If it writes over any, they are one checkpoint.
void SplitFiles(const Disk& before, const Disk& after, What& what, What& old_what) {
  const auto of_one = [&](const What& of, const std::string& file) {
    return What{of.kind, of.path, {file}};
  };
  const auto had = [&](const std::string& file) {
    const auto& files = old_what.files;
    return std::find(files.begin(), files.end(), file) != files.end();
  };
  What added{what.kind, what.path, {}};
  What kept{old_what.kind, old_what.path, {}};
  for (const std::string& file : what.files) {
    if (!had(file)) {
      added.files.push_back(file);
    } else if (Differs(of_one(what, file), before, after)) {
      return;
    } else {
      kept.files.push_back(file);
    }
  }
  if (added.files.empty()) return;
  what = added;
  if (!kept.files.empty()) old_what = kept;
}

/// What was there before the command, and is expected to be there if the command does not get far.
Status FindPrevious(const Options& options, const std::vector<What>& found, const Disk& after,
                    Outcome& outcome) {
  if (options.old_path) {
    SP_ASSIGN(outcome.old_what, TheOne(found, *options.old_path, "--old-path", "before"));
    outcome.had_previous = true;
    return Ok();
  }
  std::vector<What> before;
  if (!outcome.what.named_by.empty()) {
    const auto named = NamedBy(outcome.what.named_by, found, outcome.before);
    if (named) before = {*named};
  } else {
    if (outcome.what.files.size() == 1) before = At(found, outcome.what.FirstPath());
    if (before.empty()) before = At(found, options.path.value_or(outcome.what.path));
  }
  if (before.empty()) {
    std::copy_if(found.begin(), found.end(), std::back_inserter(before),
                 [&](const What& what) { return !IsByLink(what, outcome.before); });
  }
  // Of many steps, the command may remove the oldest one.
  std::vector<What> kept;
  for (const What& what : before) {
    if (!Differs(what, outcome.before, after)) kept.push_back(what);
  }
  if (before.size() > 1 && !kept.empty()) before = kept;
  if (before.size() > 1) {
    return BadInput(
        fmt::format("expected one previous checkpoint, found {}: name with --old-path the one "
                    "that must survive a crash",
                    Places(before)));
  }
  outcome.had_previous = !before.empty();
  if (outcome.had_previous) outcome.old_what = before.front();
  return Ok();
}

/// What is loaded: what the command has changed, and what was there instead of it.
Status FindCheckpoints(const Options& options, const Disk& after, Outcome& outcome) {
  if (!options.loader.empty()) {
    outcome.what = outcome.old_what = {"command", "", {}};
    outcome.had_previous = true;  // if it loads
    return Ok();
  }
  const auto found = CheckpointsOf(after, options.kind);
  const auto found_before = CheckpointsOf(outcome.before, options.kind);
  if (options.path) {
    SP_ASSIGN(outcome.what, TheOne(found, *options.path, "--path", "after"));
    return FindPrevious(options, found_before, after, outcome);
  }
  std::vector<What> changed;
  for (const What& what : found) {
    if (Differs(what, outcome.before, after)) changed.push_back(what);
  }
  changed = Entrances(changed, outcome.before, after);
  if (changed.empty()) {
    outcome.inconclusive = fmt::format(
        "the command changed no checkpoint{} below --root (of DCP, safetensors, .pt, .pth, .bin, "
        ".ckpt); --load 'COMMAND {{}}' loads others",
        options.kind.empty() ? "" : " of " + options.kind);
    return Ok();
  }
  if (changed.size() > 1) {
    return BadInput(fmt::format(
        "expected one checkpoint that the command saves, found {}: choose one with --path",
        Places(changed)));
  }
  outcome.what = changed.front();
  const std::vector<What> same = At(found_before, outcome.what.path);
  if (outcome.what.files.size() > 1 && same.size() == 1 && same.front().path == outcome.what.path &&
      !options.old_path) {
    outcome.old_what = same.front();
    SplitFiles(outcome.before, after, outcome.what, outcome.old_what);
  }
  if (auto named = ByName(outcome.what, outcome.before, after)) outcome.what = *named;
  if (outcome.old_what.kind.empty() || !outcome.what.named_by.empty()) {
    return FindPrevious(options, found_before, after, outcome);
  }
  outcome.had_previous = true;
  return Ok();
}

/// Where the states will lie too, so that a loader that says where it loads from says the same.
Result<Loading> LoadDisk(const Disk& disk, const What& what, Loader& loader,
                         const std::string& scratch) {
  const std::string directory = scratch + "/state";
  std::error_code error;
  if (!fs::create_directory(directory, error)) return Failed(directory + ": " + error.message());
  SP_TRY(disk.WriteTo(directory));
  auto loading = loader.Load(directory, what);
  fs::remove_all(directory, error);
  return loading;
}

/// The same twice: of a loader that tells of other things than the checkpoint nothing follows.
Result<std::optional<std::string>> TellsAlike(const Disk& disk, const What& what,
                                              const std::string& answer, Loader& loader,
                                              const std::string& scratch) {
  SP_ASSIGN(const Loading again, LoadDisk(disk, what, loader, scratch));
  if (again.end == Loading::End::kLoaded && again.answer == answer)
    return std::optional<std::string>();
  return std::optional(
      fmt::format("loading {} twice gives different results, the second time {}: a load must "
                  "always print the same for the same checkpoint",
                  what.Text(), again.end == Loading::End::kLoaded ? "another" : again.line));
}

/// Both checkpoints, whole; which must load.
Status LoadBoth(const Options& options, const Disk& after, Loader& loader,
                const std::string& scratch, Outcome& outcome) {
  if (outcome.had_previous) {
    SP_ASSIGN(const Loading old, LoadDisk(outcome.before, outcome.old_what, loader, scratch));
    const bool is_loaded = old.end == Loading::End::kLoaded;
    if (!is_loaded && (options.loader.empty() || old.end == Loading::End::kDied)) {
      return BadInput(fmt::format("the previous checkpoint, {}: does not load: {}",
                                  outcome.old_what.Text(), old.line));
    }
    outcome.had_previous = is_loaded;  // a loader of one's own says whether there is one
    outcome.old_answer = old.answer;
  }
  SP_ASSIGN(const Loading saved, LoadDisk(after, outcome.what, loader, scratch));
  if (saved.end != Loading::End::kLoaded) {
    return BadInput(fmt::format("what the command saved, {}: does not load: {}",
                                outcome.what.Text(), saved.line));
  }
  outcome.new_answer = saved.answer;
  SP_ASSIGN(const auto unlike,
            TellsAlike(after, outcome.what, outcome.new_answer, loader, scratch));
  if (unlike) {
    outcome.inconclusive = *unlike;
    return Ok();
  }
  if (outcome.had_previous && outcome.new_answer == outcome.old_answer) {
    outcome.inconclusive =
        "what the command saved loads like the previous checkpoint, so old and new cannot be told "
        "apart; save different values";
  }
  return Ok();
}

/// States, none of them loaded yet.
struct Counted {
  std::map<crash::CrashModel, crash::StateCounts> models;
  int64_t disks = 0;  ///< that differ
};

/// Nothing if there are more than `disks_max`.
Result<std::optional<Counted>> CountStates(const crash::StateOptions& states,
                                           const Outcome& outcome, int64_t disks_max) {
  std::unordered_set<uint64_t> disks;
  Counted counted;
  bool is_too_much = false;
  for (const crash::CrashModel model : states.models) {
    crash::StateOptions alone = states;
    alone.models = {model};
    const auto counts = crash::VisitStates(
        outcome.before, outcome.operations, alone, [&](const crash::CrashState& state) -> Status {
          disks.insert(state.disk.Hash());
          is_too_much = static_cast<int64_t>(disks.size()) > disks_max;
          return is_too_much ? Status(Internal("too many states")) : Ok();
        });
    if (is_too_much) return std::optional<Counted>();
    if (!counts.ok()) return counts.error();
    counted.models[model] = counts.value();
  }
  counted.disks = static_cast<int64_t>(disks.size());
  return std::optional(std::move(counted));
}

/// Looks at twice as many moments at which the machine may stop for as long as the states do not
/// get too many. If they are from the start: at fewer places where a write is torn, then at fewer
/// combinations of losses. Those of a kill are as many again, at most.
Result<Counted> FitStates(crash::StateOptions& states, int64_t states_max, const Outcome& outcome) {
  constexpr int64_t kPointsMin = 4;
  constexpr int64_t kModels = 2;  // under which machines stop
  const int64_t points_all = static_cast<int64_t>(outcome.operations.size()) + 1;
  if (states_max == 0) {
    SP_ASSIGN(std::optional<Counted> all, CountStates(states, outcome, INT64_MAX));
    return std::move(*all);
  }
  const int64_t all = std::min(states.points_max, points_all);
  states.kill_points_max = std::min(states_max, points_all);
  states.points_max = std::min(kPointsMin, all);
  const int64_t disks_max = 2 * states_max;
  SP_ASSIGN(std::optional<Counted> counted, CountStates(states, outcome, disks_max));
  if (!counted) {
    states.tears_max = 1;
    SP_ASSIGN(counted, CountStates(states, outcome, disks_max));
  }
  if (!counted) {
    states.choices_max = std::max<int64_t>(1, states_max / (kModels * kPointsMin));
    SP_ASSIGN(counted, CountStates(states, outcome, INT64_MAX));
    return std::move(*counted);
  }
  while (states.points_max < all && counted->disks < disks_max) {
    crash::StateOptions more = states;
    more.points_max = std::min(2 * states.points_max, all);
    SP_ASSIGN(std::optional<Counted> next, CountStates(more, outcome, disks_max));
    if (!next) break;
    states = more;
    counted = std::move(next);
  }
  return std::move(*counted);
}

/// What a load of a state comes to.
Result<LoadOutcome> Judge(const std::string& directory, Loader& loader, const Outcome& outcome) {
  SP_ASSIGN(const Loading loaded, loader.Load(directory, outcome.what));
  const bool is_loaded = loaded.end == Loading::End::kLoaded;
  if (is_loaded && loaded.answer == outcome.new_answer) return LoadOutcome{Loaded::kNew, ""};
  const bool is_same = outcome.what == outcome.old_what;
  if (is_loaded && is_same && outcome.had_previous && loaded.answer == outcome.old_answer) {
    return LoadOutcome{Loaded::kOld, ""};
  }
  if (loaded.end == Loading::End::kDied) {
    return LoadOutcome{Loaded::kWrong, "the load died: " + loaded.line, Wrong::kDied};
  }
  if (is_loaded) {
    return LoadOutcome{Loaded::kWrong,
                       outcome.had_previous ? "loads without an error, and is neither the new "
                                              "checkpoint nor the previous one"
                                            : "loads without an error, and is not the checkpoint",
                       Wrong::kElse};
  }
  if (!outcome.had_previous) return LoadOutcome{Loaded::kRefused, loaded.line};
  if (!is_same) {
    SP_ASSIGN(const Loading old, loader.Load(directory, outcome.old_what));
    if (old.end == Loading::End::kLoaded && old.answer == outcome.old_answer) {
      return LoadOutcome{Loaded::kOld, ""};
    }
  }
  return LoadOutcome{Loaded::kWrong,
                     "the load fails, and the previous checkpoint is gone: " + loaded.line,
                     Wrong::kLost};
}

}  // namespace

Result<Outcome> TestSave(const Options& options, Loader& loader, const std::string& scratch,
                         const Progress& progress) {
  Outcome outcome;
  outcome.versions = loader.versions();
  progress({"before the save"});
  SP_TRY(RunBefore(options));
  SP_ASSIGN(outcome.before, ReadRoot(options));
  progress({"the save, traced"});
  SP_TRY(RunSave(options, outcome));
  if (outcome.operations.empty()) {
    outcome.inconclusive = "the command changed nothing below --root " + options.root;
    return outcome;
  }
  SP_ASSIGN(const Disk after, ReadRoot(options));
  SP_TRY(FindCheckpoints(options, after, outcome));
  if (!outcome.inconclusive.empty()) return outcome;
  SP_TRY(LoadBoth(options, after, loader, scratch, outcome));
  if (!outcome.inconclusive.empty()) return outcome;

  progress({"counting states"});
  crash::StateOptions states = options.states;
  SP_ASSIGN(const Counted counted, FitStates(states, options.states_max, outcome));
  for (const auto& [model, counts] : counted.models) outcome.models[model].states = counts;
  const int64_t moments = static_cast<int64_t>(outcome.operations.size()) + 1;
  outcome.points = std::min(states.points_max, moments);
  outcome.kill_points = std::min(states.kill_points_max, moments);
  outcome.choices_max = states.choices_max;
  int64_t done = 0;
  int64_t wrong = 0;
  const auto judge = [&](const std::string& directory) -> Result<LoadOutcome> {
    SP_ASSIGN(LoadOutcome loaded, Judge(directory, loader, outcome));
    wrong += loaded.loaded == Loaded::kWrong ? 1 : 0;
    progress({fmt::format("loading states: {} of {}, {} bad", ++done, counted.disks, wrong), true});
    return loaded;
  };
  SP_ASSIGN(outcome.report,
            crash::RunStates(outcome.before, outcome.operations, states, scratch, judge,
                             {.had_previous = outcome.had_previous, .bad_max = kBadKept}));
  outcome.loads = outcome.report.loads;
  outcome.bad_count = outcome.report.bad_count;
  for (const auto& [model, outcomes] : outcome.report.outcomes) {
    outcome.models[model].outcomes = outcomes;
  }
  for (const crash::BadState& bad : outcome.report.bad) ++outcome.models[bad.model].bad;
  outcome.groups = GroupsOf(outcome.report, outcome.operations);
  return outcome;
}

}  // namespace shardproof::crashtest
