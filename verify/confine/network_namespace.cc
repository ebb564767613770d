#include "verify/confine/network_namespace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "verify/process/program.h"

namespace shardproof {
namespace {

constexpr auto kNftPatience = std::chrono::seconds(10);

/// \returns 0 or an errno.
int BringLoopbackUp() {
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return errno;
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  int failed = ::ioctl(socket, SIOCGIFFLAGS, &request) == 0 ? 0 : errno;
  request.ifr_flags |= IFF_UP;
  if (failed == 0 && ::ioctl(socket, SIOCSIFFLAGS, &request) != 0) failed = errno;
  ::close(socket);
  return failed;
}

/// In a child: has a namespace made until the other end of `done` is closed.
[[noreturn]] void HoldOne(int tell, int done) {
  int failed = ::unshare(CLONE_NEWNET) == 0 ? BringLoopbackUp() : errno;
  (void)!::write(tell, &failed, sizeof failed);
  char nothing = 0;
  (void)!::read(done, &nothing, 1);
  ::_exit(0);
}

}  // namespace

Result<NetworkNamespace> NetworkNamespace::Make() {
  std::array<int, 2> tell{};
  std::array<int, 2> done{};
  if (::pipe2(tell.data(), O_CLOEXEC) != 0) return Failed(fmt::format("pipe: {}", strerror(errno)));
  if (::pipe2(done.data(), O_CLOEXEC) != 0) return Failed(fmt::format("pipe: {}", strerror(errno)));
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(done[1]);
    HoldOne(tell[1], done[0]);
  }
  ::close(tell[1]);
  ::close(done[0]);
  int failed = child < 0 ? errno : 0;
  if (child > 0 && ::read(tell[0], &failed, sizeof failed) != sizeof failed) failed = EIO;
  int fd = -1;
  if (failed == 0) {
    fd = ::open(fmt::format("/proc/{}/ns/net", child).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) failed = errno;
  }
  ::close(tell[0]);
  ::close(done[1]);
  if (child > 0) ::waitpid(child, nullptr, 0);
  if (failed == 0) return NetworkNamespace(fd);
  return Failed(fmt::format("a network namespace is not permitted here: {}", strerror(failed)));
}

NetworkNamespace::~NetworkNamespace() {
  if (fd_ >= 0) ::close(fd_);
}

Status NetworkNamespace::Join() const {
  if (::setns(fd_, CLONE_NEWNET) == 0) return Ok();
  return Failed(fmt::format("joining a network namespace: {}", std::strerror(errno)));
}

Status DropPacketsOf(const std::string& ports) {
  // On their way in, so that whoever sends them hears nothing.
  const std::string rules = fmt::format(
      "table inet shardproof {{ chain input {{ type filter hook input priority 0; "
      "tcp sport {{ {0} }} drop; tcp dport {{ {0} }} drop; }}; }}",
      ports);
  SP_ASSIGN(const ProgramEnd end, RunProgram({"nft", rules}, kNftPatience));
  if (end.ok()) return Ok();
  const std::string line = end.error_tail.substr(0, end.error_tail.find('\n'));
  return Failed(fmt::format("nft: {}: {}", end.how, line));
}

std::string WhyNoBlackHole() {
  static const std::string why = []() -> std::string {
    const auto network = NetworkNamespace::Make();
    if (!network.ok()) return network.error().message;
    std::array<int, 2> tell{};
    if (::pipe2(tell.data(), O_CLOEXEC) != 0) return std::string("pipe: ") + strerror(errno);
    const pid_t child = ::fork();
    if (child == 0) {
      Status dropped = network.value().Join();
      if (dropped.ok()) dropped = DropPacketsOf("9");
      const std::string text = dropped.ok() ? "" : dropped.error().message;
      (void)!::write(tell[1], text.data(), text.size());
      ::_exit(dropped.ok() ? 0 : 1);
    }
    ::close(tell[1]);
    std::array<char, 500> text{};
    const ssize_t length = ::read(tell[0], text.data(), text.size());
    ::close(tell[0]);
    int status = 1;
    if (child > 0) ::waitpid(child, &status, 0);
    if (child > 0 && status == 0) return "";
    const std::string said(text.data(), static_cast<size_t>(std::max<ssize_t>(length, 0)));
    return said.empty() ? "packets cannot be dropped in a network namespace" : said;
  }();
  return why;
}

}  // namespace shardproof
