#include "src/comm/tcp_table.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace shardproof {
namespace {

constexpr const char* kHead =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
    "inode\n";

std::vector<TcpConnection> Parse(const std::string& line) { return ParseTcpTable(kHead + line); }

TEST(TcpTableTest, AConnectionThatIsNotAnswered) {
  const auto read = Parse(
      "   0: 0100007F:1F90 0200007F:0050 01 00000010:00000000 01:00000014 00000003     0        0 "
      "77 1 0 20 4 30 10 -1\n");
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].local, "0100007F:1F90");
  EXPECT_EQ(read[0].remote, "0200007F:0050");
  EXPECT_TRUE(read[0].is_established);
  EXPECT_TRUE(read[0].is_unanswered);
}

TEST(TcpTableTest, WhatIsAnswered) {
  for (const char* state :
       {"01 00000000:00000000 00:00000000 00000000",     // nothing is under way
        "01 00000010:00000000 01:00000014 00000001",     // sent again, once
        "01 00000010:00000000 04:00000014 00000003",     // the other end has no room: it is slow
        "0A 00000000:00000000 01:00000000 00000003"}) {  // listens
    const auto read = Parse(std::string("0: 0100007F:1F90 0200007F:0050 ") + state + " 0 0 77\n");
    ASSERT_EQ(read.size(), 1u) << state;
    EXPECT_FALSE(read[0].is_unanswered) << state;
  }
}

TEST(TcpTableTest, OtherTextIsLeftOut) {
  EXPECT_TRUE(ParseTcpTable("").empty());
  EXPECT_TRUE(Parse("0: 0100007F:1F90\nnonsense\n").empty());
}

TEST(TcpTableTest, TheEndThatATextNames) {
  EXPECT_EQ(TcpEndIn("recv: Read error [127.0.0.1]:8080: Connection reset by peer"),
            "0100007F:1F90");
  EXPECT_EQ(TcpEndIn("[a.cc:7] Read error [::1]:80: x"), "00000000000000000000000001000000:0050");
  for (const char* text : {"", "nothing", "[a.cc:7] nothing", "[host]:80", "]:80 ["}) {
    EXPECT_EQ(TcpEndIn(text), "") << text;
  }
}

TEST(TcpTableTest, TheEndsThatThisProcessHas) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(socket, 1), 0);
  socklen_t size = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  const TcpEnd end = TcpEndIn("[127.0.0.1]:" + std::to_string(::ntohs(address.sin_port)) + ": x");
  EXPECT_TRUE(OwnTcpEnds().contains(end)) << end;
  ::close(socket);
  EXPECT_FALSE(OwnTcpEnds().contains(end)) << end;
}

}  // namespace
}  // namespace shardproof
