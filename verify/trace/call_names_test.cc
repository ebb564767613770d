#include "verify/trace/call_names.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>

namespace shardproof::trace {
namespace {

TEST(CallNames, AreThoseOfTheKernel) {
  EXPECT_EQ(NameOf(SYS_renameat2), "renameat2");
  EXPECT_EQ(NumberOf("fsync"), SYS_fsync);
  EXPECT_EQ(NumberOf("fsink"), std::nullopt);
  EXPECT_EQ(NameOf(99999), "call 99999");
  for (const std::string& name : KnownCalls()) EXPECT_EQ(NameOf(*NumberOf(name)), name);
}

}  // namespace
}  // namespace shardproof::trace
