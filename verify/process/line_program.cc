#include "verify/process/line_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

extern char** environ;

namespace shardproof {
namespace {

constexpr std::chrono::milliseconds kEndPatience{2000};
constexpr std::chrono::milliseconds kPause{5};

}  // namespace

Result<LineProgram> LineProgram::Start(const std::vector<std::string>& words) {
  LineProgram program;
  program.name_ = words.at(0);
  std::array<int, 2> ends;  // a socket, since a pipe whose reader is gone would end this process
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return BadInput(fmt::format("socketpair: {}", std::strerror(errno)));
  }
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, ends[1], STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const int failed =
      ::posix_spawnp(&program.pid_, arguments[0], &files, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  ::close(ends[1]);
  program.socket_ = ends[0];
  if (failed != 0) {
    program.pid_ = -1;
    return BadInput(fmt::format("starting {}: {}", words[0], std::strerror(failed)));
  }
  return program;
}

LineProgram& LineProgram::operator=(LineProgram&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(pid_, other.pid_);
  std::swap(socket_, other.socket_);
  std::swap(heard_, other.heard_);
  return *this;
}

LineProgram::~LineProgram() {
  if (socket_ >= 0) ::close(socket_);
  if (pid_ < 0) return;
  using std::chrono::milliseconds;
  for (milliseconds waited{0}; waited < kEndPatience; waited += kPause) {
    if (::waitpid(pid_, nullptr, WNOHANG) != 0) return;
    std::this_thread::sleep_for(kPause);
  }
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

Status LineProgram::Tell(const std::string& line) {
  const std::string text = line + "\n";
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t now = ::send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return Failed(name_ + " is gone");
    sent += static_cast<size_t>(now);
  }
  return Ok();
}

Status LineProgram::HearMore(std::chrono::steady_clock::time_point deadline,
                             std::chrono::milliseconds patience) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd wait{socket_, POLLIN, 0};
    const int ready = left.count() <= 0 ? 0 : ::poll(&wait, 1, static_cast<int>(left.count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      return Failed(fmt::format("{}: no answer within {} s", name_, patience.count() / 1000));
    }
    std::array<char, 65536> piece;
    const ssize_t now = ::recv(socket_, piece.data(), piece.size(), 0);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return Failed(name_ + " ended without an answer");
    heard_.append(piece.data(), static_cast<size_t>(now));
    return Ok();
  }
}

Result<std::string> LineProgram::Hear(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  size_t end = 0;
  while ((end = heard_.find('\n')) == std::string::npos) SP_TRY(HearMore(deadline, patience));
  std::string line = heard_.substr(0, end);
  heard_.erase(0, end + 1);
  return line;
}

Status LineProgram::HearBytes(std::string& bytes, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (heard_.size() < bytes.size()) SP_TRY(HearMore(deadline, patience));
  std::copy_n(heard_.data(), bytes.size(), bytes.data());
  heard_.erase(0, bytes.size());
  return Ok();
}

}  // namespace shardproof
