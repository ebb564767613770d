#include "verify/process/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
      RunProgram({"sh", "-c", "head -c 3000000 /dev/zero; head -c 9000 /dev/zero >&2; echo x >&2"},
                 milliseconds(20000));
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(end.value().how, "ok");
  EXPECT_EQ(end.value().output.size(), kProgramOutputBytesMax);
  EXPECT_LE(end.value().error_tail.size(), 4096u);
  EXPECT_THAT(end.value().error_tail, ::testing::EndsWith("x\n"));
}

TEST(RunProgram, SaysWhatCannotBeStarted) {
  const auto end = RunProgram({"/no/such/program"}, milliseconds(1000));
  ASSERT_FALSE(end.ok());
  EXPECT_THAT(end.error().message, HasSubstr("/no/such/program: No such file or directory"));
}

}  // namespace
}  // namespace shardproof
