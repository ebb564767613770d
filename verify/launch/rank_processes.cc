#include "verify/launch/rank_processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>
#include <thread>

#include "src/comm/process_state.h"
#include "verify/confine/memory_cgroup.h"
#include "verify/process/program.h"

namespace shardproof {
namespace {

using Monotonic = std::chrono::steady_clock;
constexpr auto kPoll = std::chrono::milliseconds(2);
constexpr auto kGraceAfterLoss = std::chrono::seconds(10);
/// A rank that is stopped for so long is taken for lost, long before it could have missed the
/// deadline: the others then know at once.
constexpr auto kStoppedPatience = std::chrono::seconds(3);
constexpr auto kStoppedPoll = std::chrono::milliseconds(100);
/// By how many times the deadline is put off at most for ranks that wait for a processor.
constexpr int kStarvedTimes = 4;
constexpr size_t kTailBytes = 2000;
const std::string kKilled = "signal 9";

/// One rank of a launch, as it is watched.
struct Watched {
  int64_t rank = 0;
  std::string facts;   ///< path of the stream whose growth is progress
  std::string errors;  ///< path of its stderr
  bool ended = false;
  std::optional<Monotonic::time_point> stopped_since;
  RankExit exit;
};

std::string FactsPath(const PhaseRun& run, int64_t rank) {
  return fmt::format("{}/rank_{}.facts.jsonl", run.evidence, rank);
}

std::string Tail(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  const std::string all = text.str();
  return all.size() <= kTailBytes ? all : "..." + all.substr(all.size() - kTailBytes);
}

uint64_t SizeOf(const std::string& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 ? static_cast<uint64_t>(facts.st_size) : 0;
}

/// Ends ranks that have been stopped for too long.
void EndStopped(std::vector<Watched>& ranks, RankProcesses& processes) {
  for (Watched& watched : ranks) {
    const pid_t pid = watched.ended ? -1 : processes.Pid(watched.rank);
    if (pid < 0 || !IsStopped(pid)) {
      watched.stopped_since.reset();
    } else if (!watched.stopped_since) {
      watched.stopped_since = Monotonic::now();
    } else if (Monotonic::now() - *watched.stopped_since > kStoppedPatience) {
      processes.End(watched.rank);
      watched.ended = true;
      watched.exit.exit = "hang";
    }
  }
}

/// How long the rank that waited most for a processor has done so: a machine with much else to do
/// is no hang.
Monotonic::duration LongestWait(const std::vector<Watched>& ranks, RankProcesses& processes) {
  Monotonic::duration longest{};
  for (const Watched& watched : ranks) {
    const pid_t pid = watched.ended ? -1 : processes.Pid(watched.rank);
    if (pid >= 0) longest = std::max<Monotonic::duration>(longest, WaitForProcessor(pid));
  }
  return longest;
}

/// Waits for all ranks: until none makes progress for `deadline`, or, once one failed, until the
/// others have had their time to notice. Ends those that did not end by themselves.
void Await(std::vector<Watched>& ranks, RankProcesses& processes,
           std::chrono::milliseconds deadline) {
  const OomWatch memory;
  uint64_t written = 0;
  Monotonic::time_point progress = Monotonic::now();
  Monotonic::time_point give_up = Monotonic::time_point::max();
  Monotonic::time_point look = Monotonic::now();
  Monotonic::duration waited{}, waited_before{};  // now, and at the last progress
  for (;;) {
    if (Monotonic::now() >= look) {
      EndStopped(ranks, processes);
      waited = LongestWait(ranks, processes);
      look = Monotonic::now() + kStoppedPoll;
    }
    bool running = false;
    bool all_started = true;
    uint64_t now_written = 0;
    for (Watched& watched : ranks) {
      if (!watched.ended) {
        const std::optional<int> status = processes.Ended(watched.rank);
        watched.ended = status.has_value();
        if (status) watched.exit.exit = HowItEnded(*status);
        if (watched.exit.exit == kKilled) {
          const std::string why = memory.WhyKilled(processes.Pid(watched.rank));
          if (!why.empty()) watched.exit.exit += " (" + why + ")";
        }
      }
      running = running || !watched.ended;
      const uint64_t size = SizeOf(watched.facts);
      all_started = all_started && (size > 0 || watched.ended);
      now_written += size;
      if (watched.ended && watched.exit.exit != "ok" && give_up == Monotonic::time_point::max()) {
        give_up = Monotonic::now() + std::max<Monotonic::duration>(deadline, kGraceAfterLoss);
      }
    }
    if (!running) return;
    if (now_written != written) {
      progress = Monotonic::now();
      waited_before = waited;
    }
    written = now_written;
    const auto patience = all_started ? Monotonic::duration(deadline)
                                      : std::max<Monotonic::duration>(deadline, kStartAllowance);
    const auto starved =
        std::clamp(waited - waited_before, Monotonic::duration::zero(), kStarvedTimes * patience);
    if (Monotonic::now() > std::min(give_up, progress + patience + starved)) break;
    std::this_thread::sleep_for(kPoll);
  }
  for (Watched& watched : ranks) {
    if (watched.ended) continue;
    processes.End(watched.rank);
    watched.exit.exit = "hang";
  }
}

/// In the child: ties its life to its parent's and sends its stderr to the file.
void BecomeChild(const std::string& errors, pid_t parent) {
  // The rank must not outlive the launcher, whatever ends that.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(5);
  const int fd = ::open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd >= 0) ::dup2(fd, STDERR_FILENO);
}

/// Ends what a rank that is gone has left, if it was given a process group of its own.
void EndGroup(pid_t rank) { ::kill(-rank, SIGKILL); }

}  // namespace

Status ForkedProcesses::Start(const PhaseRun& run, int64_t rank) {
  std::fflush(nullptr);
  const std::string errors = ErrorsPath(run, rank);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    BecomeChild(errors, parent);
    // Nothing may unwind from here: what would be cleaned up is the launcher's.
    try {
      be_rank_(rank);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %ld: %s\n", static_cast<long>(rank), error.what());
    }
    std::fflush(nullptr);
    ::_exit(5);
  }
  if (pid < 0) return Failed(fmt::format("forking rank {}: {}", rank, std::strerror(errno)));
  pids_[rank] = pid;
  return Ok();
}

std::optional<int> ForkedProcesses::Ended(int64_t rank) {
  int status = 0;
  const pid_t pid = pids_.at(rank);
  if (::waitpid(pid, &status, WNOHANG) != pid) return std::nullopt;
  EndGroup(pid);
  return status;
}

void ForkedProcesses::End(int64_t rank) {
  const pid_t pid = pids_.at(rank);
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  EndGroup(pid);
}

std::vector<int64_t> EveryRank(const PhaseRun& run) {
  std::vector<int64_t> ranks(static_cast<size_t>(run.phase.WorldSize()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

uint64_t FactsBytes(const PhaseRun& run, int64_t rank) { return SizeOf(FactsPath(run, rank)); }

Result<std::vector<RankExit>> LaunchRanks(const PhaseRun& run, RankProcesses& processes) {
  return LaunchRanks(run, processes, EveryRank(run));
}

Result<std::vector<RankExit>> LaunchRanks(const PhaseRun& run, RankProcesses& processes,
                                          const std::vector<int64_t>& ranks) {
  std::vector<Watched> all;
  for (const int64_t rank : ranks) {
    if (Status started = processes.Start(run, rank); !started.ok()) {
      for (const Watched& other : all) processes.End(other.rank);
      return started.error();
    }
    Watched watched;
    watched.rank = rank;
    watched.facts = FactsPath(run, rank);
    watched.errors = ErrorsPath(run, rank);
    all.push_back(std::move(watched));
  }
  Await(all, processes, std::chrono::milliseconds(run.test_case.deadline_ms));
  RemoveCgroups();
  std::vector<RankExit> exits;
  for (Watched& watched : all) {
    if (watched.exit.exit != "ok") watched.exit.stderr_tail = Tail(watched.errors);
    exits.push_back(watched.exit);
  }
  return exits;
}

Status MakeEvidenceDirectory(const PhaseRun& run) {
  std::error_code error;
  std::filesystem::remove_all(run.evidence, error);
  std::filesystem::create_directories(run.evidence, error);
  return error ? BadInput(fmt::format("{}: {}", run.evidence, error.message())) : Ok();
}

}  // namespace shardproof
