#include "src/comm/tcp_table.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace shardproof {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kEstablished = 0x01;
constexpr unsigned kListening = 0x0A;
constexpr unsigned kRetransmitTimer = 1;
constexpr unsigned kSentAgainMin = 2;  // once may be a packet that was late

std::string TextOf(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// An end as the kernel writes it. \param port  in host order
TcpEnd EndOf(const uint32_t* words, size_t count, unsigned long port) {
  TcpEnd end;
  for (size_t i = 0; i < count; ++i) end += fmt::format("{:08X}", words[i]);
  return end + fmt::format(":{:04X}", port);
}

/// The local end of a descriptor; empty if it is of no TCP socket or has no port yet.
TcpEnd LocalEndOf(int fd) {
  int protocol = 0;
  socklen_t length = sizeof(protocol);
  if (::getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) != 0) return "";
  sockaddr_storage address{};
  length = sizeof(address);
  if (protocol != IPPROTO_TCP ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return "";
  }
  std::array<uint32_t, 4> words{};
  size_t count = 1;
  in_port_t port = 0;
  if (address.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    words[0] = four.sin_addr.s_addr;
    port = four.sin_port;
  } else {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
    std::memcpy(words.data(), &six.sin6_addr, sizeof(words));
    count = words.size();
    port = six.sin6_port;
  }
  return port == 0 ? "" : EndOf(words.data(), count, ntohs(port));
}

}  // namespace

std::vector<TcpConnection> ParseTcpTable(const std::string& text) {
  std::vector<TcpConnection> connections;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string number, queues, timer, again;
    TcpConnection found;
    std::string state;
    if (!(fields >> number >> found.local >> found.remote >> state >> queues >> timer >> again)) {
      continue;
    }
    if (found.local.find(':') == std::string::npos) continue;  // what heads the columns
    const auto hex = [](const std::string& digits) {
      return std::strtoul(digits.c_str(), nullptr, 16);
    };
    found.is_established = hex(state) == kEstablished;
    found.is_unanswered = hex(state) != kListening && hex(queues) > 0 &&
                          hex(timer) == kRetransmitTimer && hex(again) >= kSentAgainMin;
    connections.push_back(std::move(found));
  }
  return connections;
}

std::vector<TcpConnection> TcpConnectionsHere() {
  // Of the thread: its process may have a leader that is in another namespace, or gone.
  auto connections = ParseTcpTable(TextOf("/proc/thread-self/net/tcp"));
  auto more = ParseTcpTable(TextOf("/proc/thread-self/net/tcp6"));
  connections.insert(connections.end(), more.begin(), more.end());
  return connections;
}

std::set<TcpEnd> OwnTcpEnds() {
  // Not by the kernel's table, of which reading all takes long on some machines: every rank asks
  // this whenever it makes a communicator.
  std::set<TcpEnd> ends;
  std::error_code error;
  for (fs::directory_iterator it("/proc/self/fd", error), end; !error && it != end;
       it.increment(error)) {
    const int fd = std::atoi(it->path().filename().c_str());
    if (const TcpEnd local = LocalEndOf(fd); !local.empty()) ends.insert(local);
  }
  return ends;
}

TcpEnd TcpEndIn(const std::string& text) {
  const size_t open = text.rfind('[');
  const size_t close = text.find("]:", open);
  if (open == std::string::npos || close == std::string::npos) return "";
  const std::string address = text.substr(open + 1, close - open - 1);
  const unsigned long port = std::strtoul(text.c_str() + close + 2, nullptr, 10);
  std::array<uint32_t, 4> words{};
  size_t count = 0;
  if (::inet_pton(AF_INET, address.c_str(), words.data()) == 1) count = 1;
  if (::inet_pton(AF_INET6, address.c_str(), words.data()) == 1) count = 4;
  if (count == 0) return "";
  return EndOf(words.data(), count, port);
}

}  // namespace shardproof
