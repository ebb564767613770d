#include "verify/interpose/firings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>

namespace shardproof::interpose {
namespace {

using ::testing::HasSubstr;

constexpr const char* kDrop =
    R"({"fault": "ncclAllReduce:drop", "function": "ncclAllReduce", "call": 3, "rank": 1, "bytes": 4096, "detail": "d"})"
    "\n";
constexpr const char* kFlip =
    R"({"fault": "cudaMemcpy:flip=0", "function": "cudaMemcpy", "call": 0, "rank": null, "bytes": 8, "detail": "f"})"
    "\n";

Result<std::vector<Firing>> FiringsIn(const std::string& content) {
  char path[] = "/tmp/firings-XXXXXX";
  ::close(::mkstemp(path));
  std::ofstream(path) << content;
  Result<std::vector<Firing>> firings = ReadFirings(path);
  ::unlink(path);
  return firings;
}

TEST(InterposeFirings, AreReadAsTheyWereWritten) {
  const Result<std::vector<Firing>> read = FiringsIn(std::string(kDrop) + kFlip);
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read.value().size(), 2u);
  const Firing& drop = read.value()[0];
  EXPECT_EQ(drop.rule, "ncclAllReduce:drop");
  EXPECT_EQ(drop.function, "ncclAllReduce");
  EXPECT_EQ(drop.call, 3);
  EXPECT_EQ(drop.rank, 1);
  EXPECT_EQ(drop.bytes, 4096u);
  EXPECT_EQ(drop.detail, "d");
  EXPECT_EQ(read.value()[1].rank, std::nullopt);
  EXPECT_TRUE(FiringsIn("").value().empty());
}

TEST(InterposeFirings, AreNoneIfTakenBackOrCutOff) {
  const std::string undone =
      R"({"fault": "cudaMemcpy:flip=0", "function": "cudaMemcpy", "undone": "why"})"
      "\n";
  const Result<std::vector<Firing>> read =
      FiringsIn(kFlip + std::string(kDrop) + undone + R"({"fault": "ncc)");
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read.value().size(), 1u);
  EXPECT_EQ(read.value()[0].rule, "ncclAllReduce:drop");
}

TEST(InterposeFirings, RefuseWhatIsNone) {
  const Result<std::vector<Firing>> read = FiringsIn(std::string(kDrop) + "{\"fault\": 3}\n");
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message, HasSubstr("line 2: expected a firing, found '{\"fault\": 3}'"));
  EXPECT_FALSE(FiringsIn("no JSON\n").ok());
  const Result<std::vector<Firing>> absent = ReadFirings("/tmp/firings-that-are-not-there");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace shardproof::interpose
