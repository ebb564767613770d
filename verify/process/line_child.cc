#include "verify/process/line_child.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace shardproof {
namespace {

bool SendLine(int socket, const std::string& line) {
  const std::string text = line + "\n";
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t now = ::send(socket, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return false;
    sent += static_cast<size_t>(now);
  }
  return true;
}

[[noreturn]] void BeChild(int socket, const std::function<void()>& prepare,
                          const LineChild::Answer& answer) {
  prepare();
  std::FILE* orders = ::fdopen(::dup(socket), "r");
  char* line = nullptr;
  size_t capacity = 0;
  ssize_t length = 0;
  while (orders != nullptr && (length = ::getline(&line, &capacity, orders)) > 0) {
    if (!SendLine(socket, answer(std::string(line, static_cast<size_t>(length) - 1)))) break;
  }
  std::fflush(nullptr);
  ::_exit(0);
}

}  // namespace

LineChild& LineChild::operator=(LineChild&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(socket_, other.socket_);
  std::swap(heard_, other.heard_);
  return *this;
}

Status LineChild::Fork(const std::function<void()>& prepare, const Answer& answer) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return Internal(fmt::format("socketpair: {}", std::strerror(errno)));
  }
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(5);
    ::close(ends[0]);
    BeChild(ends[1], prepare, answer);
  }
  ::close(ends[1]);
  if (pid < 0) {
    ::close(ends[0]);
    return Internal(fmt::format("forking a process: {}", std::strerror(errno)));
  }
  End();
  pid_ = pid;
  socket_ = ends[0];
  return Ok();
}

void LineChild::Tell(const std::string& line) { (void)SendLine(socket_, line); }

bool LineChild::Hear(std::vector<std::string>& lines) {
  char buffer[1 << 16];
  const ssize_t now = ::recv(socket_, buffer, sizeof buffer, MSG_DONTWAIT);
  if (now < 0) return errno == EAGAIN || errno == EINTR;
  heard_.append(buffer, static_cast<size_t>(now));
  size_t begin = 0;
  for (size_t end; (end = heard_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    lines.push_back(heard_.substr(begin, end - begin));
  }
  heard_.erase(0, begin);
  return now > 0;
}

int LineChild::End() {
  int status = 0;
  if (!IsThere()) return status;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, &status, 0);
  ::close(socket_);
  pid_ = -1;
  socket_ = -1;
  heard_.clear();
  return status;
}

}  // namespace shardproof
