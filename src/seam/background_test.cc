#include "src/seam/background.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace shardproof {
namespace {

TEST(Threads, RunATaskBesideItsCallerAndGiveItsOutcome) {
  const auto threads = MakeThreads();
  std::atomic<bool> go = false;
  const std::thread::id here = std::this_thread::get_id();
  const auto task = threads->Start([&]() -> Status {
    while (!go) std::this_thread::yield();
    EXPECT_NE(std::this_thread::get_id(), here);
    return Failed("no space left");
  });
  go = true;  // a task that ran in its caller's thread would never get here
  EXPECT_EQ(task->Wait().error().message, "no space left");
  EXPECT_EQ(task->Wait().error().message, "no space left");
}

TEST(Threads, EndWhatNobodyWaitsFor) {
  std::atomic<int> done = 0;
  {
    const auto threads = MakeThreads();
    for (int i = 0; i < 3; ++i) {
      (void)threads->Start([&]() -> Status {
        ++done;
        return Ok();
      });
    }
  }
  EXPECT_EQ(done, 3);
}

}  // namespace
}  // namespace shardproof
