// Runs html.py. No shell: a path is never a command.
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "verify/report/report.h"
#include "verify/report/text.h"

extern char** environ;

namespace shardproof {
namespace {

constexpr size_t kQuotedBytes = 4096;

// The last bytes that the child said, read until it closes the pipe.
std::string ReadTail(int fd) {
  std::string tail;
  char chunk[4096];
  for (;;) {
    const ssize_t read_bytes = read(fd, chunk, sizeof chunk);
    if (read_bytes < 0 && errno == EINTR) continue;
    if (read_bytes <= 0) return tail;
    tail.append(chunk, static_cast<size_t>(read_bytes));
    if (tail.size() > kQuotedBytes) tail.erase(0, tail.size() - kQuotedBytes);
  }
}

std::string HowItEnded(int status) {
  if (WIFSIGNALED(status)) return fmt::format("signal {}", WTERMSIG(status));
  return fmt::format("exit {}", WEXITSTATUS(status));
}

}  // namespace

Status WriteHtml(const std::string& python, const std::string& script,
                 const std::string& result_json, const std::string& evidence_directory,
                 const std::string& out) {
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) return BadInput(fmt::format("pipe: {}", strerror(errno)));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDERR_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);

  std::string words[] = {python, script, result_json, evidence_directory, out};
  char* argv[] = {words[0].data(), words[1].data(), words[2].data(),
                  words[3].data(), words[4].data(), nullptr};
  pid_t child = 0;
  const int spawned = posix_spawnp(&child, argv[0], &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_fds[1]);
  if (spawned != 0) {
    close(pipe_fds[0]);
    return BadInput(fmt::format("HTML report {}: starting {}: {}", out, python, strerror(spawned)));
  }
  const std::string said = ReadTail(pipe_fds[0]);
  close(pipe_fds[0]);
  int status = 0;
  pid_t waited = 0;
  do {
    waited = waitpid(child, &status, 0);
  } while (waited < 0 && errno == EINTR);
  if (waited < 0) return BadInput(fmt::format("HTML report {}: waiting: {}", out, strerror(errno)));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return Ok();
  return BadInput(fmt::format("HTML report {}: {} ended with {}: {}", out, script,
                              HowItEnded(status), Printable(said, true)));
}

}  // namespace shardproof
