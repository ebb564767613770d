#include "verify/run/rank_processes.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <fmt/format.h>

namespace shardproof {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPoll = std::chrono::milliseconds(2);
constexpr auto kGraceAfterLoss = std::chrono::seconds(10);
constexpr size_t kTailBytes = 2000;

struct Child {
  pid_t pid = -1;
  std::string facts;   ///< path of the stream whose growth is progress
  std::string errors;  ///< path of its stderr
  bool ended = false;
  RankExit exit;
};

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

/// Notes a child's end if it has come.
void Reap(Child& child) {
  int status = 0;
  if (child.ended || ::waitpid(child.pid, &status, WNOHANG) != child.pid) return;
  child.ended = true;
  if (WIFSIGNALED(status)) {
    child.exit.exit = fmt::format("signal {}", WTERMSIG(status));
  } else if (WEXITSTATUS(status) == 0) {
    child.exit.exit = "ok";
  } else {
    child.exit.exit = fmt::format("exit {}", WEXITSTATUS(status));
  }
}

/// Ends a child that did not end by itself.
void EndAsHung(Child& child) {
  if (child.ended) return;
  ::kill(child.pid, SIGKILL);
  ::waitpid(child.pid, nullptr, 0);
  child.ended = true;
  child.exit.exit = "hang";
}

/// Waits for all children: until none makes progress for `deadline`, or, once one failed, until the
/// others have had their time to notice.
void Await(std::vector<Child>& children, std::chrono::milliseconds deadline) {
  uint64_t written = 0;
  Clock::time_point progress = Clock::now();
  Clock::time_point give_up = Clock::time_point::max();
  for (;;) {
    bool running = false;
    uint64_t now_written = 0;
    for (Child& child : children) {
      Reap(child);
      running = running || !child.ended;
      now_written += SizeOf(child.facts);
      if (child.ended && child.exit.exit != "ok" && give_up == Clock::time_point::max()) {
        give_up = Clock::now() + std::max<Clock::duration>(deadline, kGraceAfterLoss);
      }
    }
    if (!running) return;
    if (now_written != written) progress = Clock::now();
    written = now_written;
    if (Clock::now() > std::min(give_up, progress + deadline)) break;
    std::this_thread::sleep_for(kPoll);
  }
  for (Child& child : children) EndAsHung(child);
}

/// In the child: ties its life to its parent's and sends its stderr to the file.
void BecomeChild(const Child& child, pid_t parent) {
  // The rank must not outlive the launcher, whatever ends that.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(5);
  const int fd = ::open(child.errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd >= 0) ::dup2(fd, STDERR_FILENO);
}

}  // namespace

Result<std::vector<RankExit>> LaunchProcesses(const PhaseRun& run,
                                              const std::function<void(int64_t rank)>& be_rank) {
  std::fflush(nullptr);
  std::vector<Child> children;
  const pid_t parent = ::getpid();
  for (int64_t rank = 0; rank < run.phase.WorldSize(); ++rank) {
    Child child;
    child.facts = fmt::format("{}/rank_{}.facts.jsonl", run.evidence, rank);
    child.errors = fmt::format("{}/rank_{}.stderr", run.evidence, rank);
    child.pid = ::fork();
    if (child.pid == 0) {
      BecomeChild(child, parent);
      be_rank(rank);
      ::_exit(5);
    }
    if (child.pid < 0) {
      const std::string why = std::strerror(errno);
      for (Child& started : children) EndAsHung(started);
      return Failed(fmt::format("forking rank {} of {}: {}", rank, run.phase.WorldSize(), why));
    }
    children.push_back(std::move(child));
  }
  Await(children, std::chrono::milliseconds(run.test_case.deadline_ms));
  std::vector<RankExit> exits;
  for (Child& child : children) {
    if (child.exit.exit != "ok") child.exit.stderr_tail = Tail(child.errors);
    exits.push_back(child.exit);
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
