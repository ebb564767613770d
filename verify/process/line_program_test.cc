#include "verify/process/line_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>

namespace shardproof {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

TEST(LineProgram, AnswersLineByLine) {
  auto program = LineProgram::Start({"sh", "-c", "while read -r x; do echo \"<$x>\"; done"});
  ASSERT_TRUE(program.ok()) << program.error().message;
  for (const std::string& line : {std::string("a"), std::string("b c"), std::string(100000, 'x')}) {
    ASSERT_TRUE(program.value().Tell(line).ok());
    const auto heard = program.value().Hear(milliseconds(10000));
    ASSERT_TRUE(heard.ok()) << heard.error().message;
    EXPECT_EQ(heard.value(), "<" + line + ">");
  }
}

TEST(LineProgram, MayEndWhatItHasStarted) {
  const std::string done = ::testing::TempDir() + "/line-program-ended";
  std::filesystem::remove(done);
  {
    auto program =
        LineProgram::Start({"sh", "-c", "echo go; cat; sleep 0.3; echo > '" + done + "'"});
    ASSERT_TRUE(program.ok());
    ASSERT_TRUE(program.value().Hear(std::chrono::seconds(10)).ok());
  }
  EXPECT_TRUE(std::filesystem::remove(done));
}

TEST(LineProgram, OneThatDoesNotEndIsEnded) {
  const auto begun = std::chrono::steady_clock::now();
  {
    auto program = LineProgram::Start({"sh", "-c", "echo go; sleep 60"});
    ASSERT_TRUE(program.ok());
    ASSERT_TRUE(program.value().Hear(std::chrono::seconds(10)).ok());
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(30));
}

TEST(LineProgram, SaysWhoIsGoneOrSilent) {
  auto gone = LineProgram::Start({"true"});
  ASSERT_TRUE(gone.ok());
  const auto ended = gone.value().Hear(milliseconds(10000));
  ASSERT_FALSE(ended.ok());
  EXPECT_THAT(ended.error().message, HasSubstr("true ended without an answer"));
  auto silent = LineProgram::Start({"sleep", "60"});
  const auto late = silent.value().Hear(milliseconds(50));
  ASSERT_FALSE(late.ok());
  EXPECT_THAT(late.error().message, HasSubstr("no answer within"));
  EXPECT_FALSE(LineProgram::Start({"no-such-program-at-all"}).ok());
}

}  // namespace
}  // namespace shardproof
