#include "verify/soak/soak.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "verify/soak/workers.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;
using Steady = std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::milliseconds(200);
/// Beyond what the case's own deadline lets its phases take.
constexpr auto kCaseAllowance = std::chrono::seconds(120);

volatile sig_atomic_t interrupted = 0;

/// Notes SIGTERM and SIGINT instead of ending the process.
class Interruption {
 public:
  Interruption() {
    interrupted = 0;
    struct sigaction action{};
    action.sa_handler = [](int) { interrupted = 1; };
    ::sigaction(SIGTERM, &action, &old_term_);
    ::sigaction(SIGINT, &action, &old_int_);
  }
  ~Interruption() {
    ::sigaction(SIGTERM, &old_term_, nullptr);
    ::sigaction(SIGINT, &old_int_, nullptr);
  }

 private:
  struct sigaction old_term_{};
  struct sigaction old_int_{};
};

/// Keeps this process on one core: of its threads only one runs at a time, and what passes from one to the
/// next need not pass from core to core.
void StayOnOneCore(size_t slot) {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  const size_t cores = static_cast<size_t>(CPU_COUNT(&allowed));
  size_t wanted = slot % cores;
  for (size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || wanted-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ::sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

/// Launchers of one worker, kept from case to case.
class WorkerState {
 public:
  WorkerState(const SoakOptions& options, size_t slot)
      : options_(options), directory_(fmt::format("{}/worker_{}", options.directory, slot)) {
    if (options.generate.transport == "sim") StayOnOneCore(slot);
  }

  CaseOutcome Run(const Case& test_case, uint64_t index) {
    auto& launcher = launchers_[test_case.subject + " " + test_case.transport];
    if (!launcher) launcher = LauncherFor(test_case, options_.python, true);
    return RunOne(test_case, index, options_, directory_, *launcher);
  }

 private:
  const SoakOptions& options_;
  std::string directory_;
  std::map<std::string, std::unique_ptr<Launcher>> launchers_;
};

}  // namespace

Case SoakCase(const SoakOptions& options, uint64_t index) {
  Case made = GenerateCase(options.generate, options.seed, index);
  made.bug = options.bug;
  return made;
}

std::unique_ptr<Launcher> LauncherFor(const Case& test_case, const PythonOptions& python,
                                      bool in_this_process) {
  if (test_case.subject != kReference) return MakeSubjectLauncher(python);
  if (test_case.transport == "sim") return MakeSimLauncher(in_this_process);
  return MakeForkLauncher();
}

CaseOutcome RunOne(const Case& test_case, uint64_t index, const SoakOptions& options,
                   const std::string& directory, Launcher& launcher) {
  std::error_code error;
  fs::remove_all(directory, error);
  fs::create_directories(directory, error);
  if (error) return NotJudged(index, fmt::format("{}: {}", directory, error.message()));
  const auto result = Verify(test_case, launcher,
                             {.subject = options.subject,
                              .directory = directory,
                              .save_to = {},
                              .properties = options.properties,
                              .progress = {}});
  return result.ok() ? OutcomeOf(index, result.value()) : NotJudged(index, result.error().message);
}

Result<SoakEnd> Soak(const SoakOptions& options, SoakSummary& summary) {
  const Interruption interruption;
  const auto begin = Steady::now();
  const double earlier_ms = summary.duration_ms;
  // The corpus comes first; its cases go by the indices below the stream's.
  const uint64_t corpus = options.corpus.size();
  const auto case_at = [&](uint64_t place) {
    return place < corpus ? options.corpus[place] : SoakCase(options, place - corpus);
  };
  std::unique_ptr<WorkerState> state;  // in a worker: its own
  size_t jobs = options.jobs != 0 ? options.jobs : std::max(1u, std::thread::hardware_concurrency());
  Workers workers(
      jobs,
      [&](size_t slot, uint64_t place) {
        if (!state) state = std::make_unique<WorkerState>(options, slot);
        return state->Run(case_at(place), place);
      },
      std::chrono::milliseconds(Case().deadline_ms) + kCaseAllowance);

  uint64_t place = summary.cases() == 0 ? 0 : corpus;
  const uint64_t first = std::max(options.first, summary.next);
  if (summary.next < options.first) summary.next = options.first;
  const uint64_t end = options.cases ? options.first + *options.cases : UINT64_MAX;
  uint64_t next = first;
  std::optional<SoakEnd> ending;
  while (!ending || !workers.IsIdle()) {
    const bool time_over = options.time && Steady::now() - begin > *options.time;
    if (interrupted) ending = SoakEnd::kSignal;
    else if (!ending && time_over) ending = SoakEnd::kTime;
    if (ending == SoakEnd::kSignal || ending == SoakEnd::kFailure) break;
    while (!ending && workers.HasRoom()) {
      if (place >= corpus) {
        while (summary.counted_beyond.contains(next)) ++next;
        if (next >= end) {
          ending = SoakEnd::kDone;
          break;
        }
      }
      SP_TRY(workers.Give(place < corpus ? place++ : corpus + next++));
    }
    for (CaseOutcome& outcome : workers.Collect(kPatience)) {
      const Case test_case = case_at(outcome.index);
      const bool numbered = outcome.index >= corpus;
      if (numbered) outcome.index -= corpus;
      summary.Count(test_case, outcome, numbered);
      if (outcome.verdict != Verdict::kPass && !options.keep_going) ending = SoakEnd::kFailure;
    }
    summary.duration_ms =
        earlier_ms + std::chrono::duration<double, std::milli>(Steady::now() - begin).count();
    if (options.progress) options.progress(summary);
  }
  return *ending;
}

}  // namespace shardproof
