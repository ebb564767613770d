#include "verify/process/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>

namespace shardproof {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

TEST(RunProgram, KeepsWhatBothStreamsSaidAndHowItEnded) {
  const auto end = RunProgram({"sh", "-c", "echo out; echo err >&2; exit 3"}, milliseconds(10000));
  ASSERT_TRUE(end.ok()) << end.error().message;
  EXPECT_EQ(end.value().output, "out\n");
  EXPECT_EQ(end.value().error_tail, "err\n");
  EXPECT_EQ(end.value().how, "exit 3");
  EXPECT_FALSE(end.value().ok());
  EXPECT_TRUE(RunProgram({"true"}, milliseconds(10000)).value().ok());
}

TEST(RunProgram, PassesWordsAsTheyAre) {
  const auto end = RunProgram({"printf", "%s", "$(echo no) 'quoted'"}, milliseconds(10000));
  EXPECT_EQ(end.value().output, "$(echo no) 'quoted'");
}

TEST(RunProgram, EndsOneThatDoesNotEnd) {
  const auto end = RunProgram({"sleep", "600"}, milliseconds(50));
  ASSERT_TRUE(end.ok());
  EXPECT_THAT(end.value().how, HasSubstr("no end within"));
}

TEST(RunProgram, BoundsWhatItKeeps) {
  const auto end =
      RunProgram({"sh", "-c", "head -c 20000000 /dev/zero; head -c 9000 /dev/zero >&2; echo x >&2"},
                 milliseconds(20000));
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(end.value().how, "ok");
  EXPECT_EQ(end.value().output.size(), kProgramOutputBytesMax);
  EXPECT_TRUE(end.value().output_is_cut);
  EXPECT_LE(end.value().error_tail.size(), 4096u);
  EXPECT_THAT(end.value().error_tail, ::testing::EndsWith("x\n"));
}

TEST(RunProgram, SaysWhatCannotBeStarted) {
  const auto end = RunProgram({"/no/such/program"}, milliseconds(1000));
  ASSERT_FALSE(end.ok());
  EXPECT_THAT(end.error().message, HasSubstr("/no/such/program: No such file or directory"));
}

TEST(RunProgram, WhatOutlivesItIsNotWaitedFor) {
  const auto begun = std::chrono::steady_clock::now();
  const auto end = RunProgram({"sh", "-c", "sleep 20 & echo said"}, std::chrono::seconds(15));
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(end.value().how, "ok");
  EXPECT_EQ(end.value().output, "said\n");
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(10));
}

TEST(RunProgram, OneThatIsKilledTakesAllAlong) {
  const auto end = RunProgram({"sh", "-c", "(sleep 1234.5 & echo $!; wait) | cat; true"},
                              std::chrono::milliseconds(500));
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(end.value().how, "no end within 0.5 s");
  const pid_t grandchild = std::atoi(end.value().output.c_str());
  ASSERT_GT(grandchild, 1);
  for (int i = 0; i < 200 && ::kill(grandchild, 0) == 0; ++i) ::usleep(10000);
  std::ifstream stat("/proc/" + std::to_string(grandchild) + "/stat");  // or nobody has reaped it
  std::string pid, name, state = "Z";
  stat >> pid >> name >> state;
  EXPECT_EQ(state, "Z");
}

}  // namespace
}  // namespace shardproof
