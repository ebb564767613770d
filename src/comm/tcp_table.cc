#include "src/comm/tcp_table.h"

#include <arpa/inet.h>
#include <fmt/format.h>

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

/// Inodes of the sockets that this process has.
std::set<std::string> OwnSockets() {
  std::set<std::string> inodes;
  std::error_code error;
  for (fs::directory_iterator it("/proc/self/fd", error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;
    const std::string target = fs::read_symlink(it->path(), gone).string();
    const std::string prefix = "socket:[";
    if (target.starts_with(prefix)) inodes.insert(target.substr(prefix.size(), target.size() - 9));
  }
  return inodes;
}

}  // namespace

std::vector<TcpConnection> ParseTcpTable(const std::string& text) {
  std::vector<TcpConnection> connections;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string number, queues, timer, again, user, timeout;
    TcpConnection found;
    std::string state;
    if (!(fields >> number >> found.local >> found.remote >> state >> queues >> timer >> again >>
          user >> timeout >> found.inode)) {
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
  const auto own = OwnSockets();
  std::set<TcpEnd> ends;
  for (const TcpConnection& one : TcpConnectionsHere()) {
    if (own.contains(one.inode)) ends.insert(one.local);
  }
  return ends;
}

TcpEnd TcpEndIn(const std::string& text) {
  const size_t open = text.rfind('[');
  const size_t close = text.find("]:", open);
  if (open == std::string::npos || close == std::string::npos) return "";
  const std::string address = text.substr(open + 1, close - open - 1);
  const long port = std::strtol(text.c_str() + close + 2, nullptr, 10);
  std::array<uint32_t, 4> words{};
  size_t count = 0;
  if (::inet_pton(AF_INET, address.c_str(), words.data()) == 1) count = 1;
  if (::inet_pton(AF_INET6, address.c_str(), words.data()) == 1) count = 4;
  if (count == 0) return "";
  TcpEnd end;
  for (size_t i = 0; i < count; ++i) end += fmt::format("{:08X}", words[i]);
  return end + fmt::format(":{:04X}", port);
}

}  // namespace shardproof
