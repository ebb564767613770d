#include "verify/process/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "verify/process/process_tree.h"

extern char** environ;

namespace shardproof {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kErrorTailBytes = 4096;

/// Both ends of a pipe, closed when it goes.
class Pipe {
 public:
  Pipe() = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    CloseRead();
    CloseWrite();
  }
  bool Open() { return ::pipe2(ends_.data(), O_CLOEXEC) == 0; }
  int read_end() const { return ends_[0]; }
  int write_end() const { return ends_[1]; }
  void CloseRead() { Close(ends_[0]); }
  void CloseWrite() { Close(ends_[1]); }

 private:
  static void Close(int& fd) {
    if (fd >= 0) ::close(fd);
    fd = -1;
  }
  std::array<int, 2> ends_{-1, -1};
};

/// Appends what there is to read. \returns false at the end.
bool Drain(int fd, std::string& text) {
  std::array<char, 4096> chunk;
  const ssize_t length = ::read(fd, chunk.data(), chunk.size());
  if (length < 0) return errno == EINTR;
  text.append(chunk.data(), static_cast<size_t>(length));
  return length > 0;
}

bool HasEnded(pid_t child) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == child;
}

/// Reads both streams until both have ended, or the child has and nothing more comes. \returns
/// false if the deadline came first.
bool ReadUntil(Clock::time_point deadline, pid_t child, Pipe& output, Pipe& errors,
               ProgramEnd& end) {
  constexpr std::chrono::milliseconds kLook{100};
  while (output.read_end() >= 0 || errors.read_end() >= 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return false;
    const bool has_ended = HasEnded(child);  // before the look, so that nothing it said is missed
    std::array<pollfd, 2> waits{{{output.read_end(), POLLIN, 0}, {errors.read_end(), POLLIN, 0}}};
    const int ready =
        ::poll(waits.data(), waits.size(), static_cast<int>(std::min(left, kLook).count()));
    if (ready < 0 && errno != EINTR) return false;
    if (ready == 0 && has_ended) return true;
    if (waits[0].revents != 0 && !Drain(output.read_end(), end.output)) output.CloseRead();
    if (waits[1].revents != 0 && !Drain(errors.read_end(), end.error_tail)) errors.CloseRead();
    if (end.output.size() > kProgramOutputBytesMax) {
      end.output.resize(kProgramOutputBytesMax);
      end.output_is_cut = true;
    }
    if (end.error_tail.size() > kErrorTailBytes) {
      end.error_tail.erase(0, end.error_tail.size() - kErrorTailBytes);
    }
  }
  return true;
}

}  // namespace

std::string NoEndWithin(std::chrono::milliseconds deadline) {
  return fmt::format("no end within {:g} s", static_cast<double>(deadline.count()) / 1000);
}

std::string HowItEnded(int wait_status) {
  if (WIFSIGNALED(wait_status)) return fmt::format("signal {}", WTERMSIG(wait_status));
  return WEXITSTATUS(wait_status) == 0 ? "ok" : fmt::format("exit {}", WEXITSTATUS(wait_status));
}

Result<ProgramEnd> RunProgram(const std::vector<std::string>& words,
                              std::chrono::milliseconds deadline) {
  Pipe output;
  Pipe errors;
  if (!output.Open() || !errors.Open()) return BadInput(fmt::format("pipe: {}", strerror(errno)));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output.write_end(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors.write_end(), STDERR_FILENO);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int spawned =
      ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  output.CloseWrite();
  errors.CloseWrite();
  if (spawned != 0) return BadInput(fmt::format("starting {}: {}", words[0], strerror(spawned)));
  ProgramEnd end;
  const bool finished = ReadUntil(Clock::now() + deadline, child, output, errors, end);
  if (!finished) KillTree(child);
  int status = 0;
  pid_t waited = 0;
  do {
    waited = ::waitpid(child, &status, 0);
  } while (waited < 0 && errno == EINTR);
  if (waited < 0) return BadInput(fmt::format("waiting for {}: {}", words[0], strerror(errno)));
  end.how = finished ? HowItEnded(status) : NoEndWithin(deadline);
  if (finished && WIFEXITED(status)) end.exit = WEXITSTATUS(status);
  return end;
}

}  // namespace shardproof
