// What the kernel knows of TCP connections: whose they are, and whether the other end still
// acknowledges what is sent.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace shardproof {

/// One end of a connection as the kernel writes it: "0100007F:1F90".
using TcpEnd = std::string;

struct TcpConnection {
  TcpEnd local;
  TcpEnd remote;
  bool is_established = false;
  /// What was sent was sent again, twice or more, and is not acknowledged.
  bool is_unanswered = false;
};

/// The lines of /proc/PID/net/tcp or tcp6. Lines of another form are left out.
/// \source proc(5), /proc/net/tcp
std::vector<TcpConnection> ParseTcpTable(const std::string& text);

/// All connections of this process's network namespace.
std::vector<TcpConnection> TcpConnectionsHere();

/// Local ends of the TCP sockets that this process has, those that listen among them.
std::set<TcpEnd> OwnTcpEnds();

/// The end that a text names as Gloo does, "... [127.0.0.1]:8080: Connection reset by peer"; empty
/// if it names none.
TcpEnd TcpEndIn(const std::string& text);

}  // namespace shardproof
