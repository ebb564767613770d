#include "verify/trace/call_names.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>

namespace shardproof::trace {
namespace {

TEST(CallNames, AreThoseOfTheKernel) {
  EXPECT_EQ(NameOf(SYS_renameat2), "renameat2");
  EXPECT_EQ(NameOf(SYS_fsync), "fsync");
  EXPECT_EQ(NameOf(99999), "call 99999");
}

}  // namespace
}  // namespace shardproof::trace
