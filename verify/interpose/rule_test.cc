#include "verify/interpose/rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace shardproof::interpose {
namespace {

using ::testing::HasSubstr;

std::vector<Rule> Read(const std::string& text) {
  Result<std::vector<Rule>> rules = ParseRules(text);
  EXPECT_TRUE(rules.ok()) << rules.error().message;
  return rules.ok() ? rules.value() : std::vector<Rule>(1);
}

/// Refused, in one line that says this.
void ExpectRefused(const std::string& text, const std::string& said) {
  const Result<std::vector<Rule>> rules = ParseRules(text);
  ASSERT_FALSE(rules.ok()) << text;
  EXPECT_THAT(rules.error().message, HasSubstr(said)) << text;
  EXPECT_EQ(rules.error().message.find('\n'), std::string::npos) << text;
  EXPECT_EQ(rules.error().code, ErrorCode::kBadInput);
}

TEST(InterposeRule, SaysWhatAndWhen) {
  const std::vector<Rule> rules = Read(
      "ncclAllReduce:call=3,rank=1,drop;cudaMalloc:bytes=1048576,error=cudaErrorMemoryAllocation");
  ASSERT_EQ(rules.size(), 2u);
  EXPECT_EQ(rules[0].function, Function::ncclAllReduce);
  EXPECT_EQ(rules[0].act, Act::kDrop);
  EXPECT_EQ(rules[0].call, 3);
  EXPECT_EQ(rules[0].rank, 1);
  EXPECT_FALSE(rules[0].then_on);
  EXPECT_EQ(rules[0].text, "ncclAllReduce:call=3,rank=1,drop");
  EXPECT_EQ(rules[1].function, Function::cudaMalloc);
  EXPECT_EQ(rules[1].act, Act::kError);
  EXPECT_EQ(rules[1].value, 2);
  EXPECT_EQ(rules[1].bytes_min, 1048576u);
  EXPECT_EQ(rules[1].rank, std::nullopt);
  EXPECT_EQ(rules[1].call, 0);
}

TEST(InterposeRule, HasEveryAct) {
  const std::vector<std::pair<std::string, std::pair<Act, int64_t>>> acts = {
      {"error=ncclSystemError", {Act::kError, 2}},
      {"error=6", {Act::kError, 6}},
      {"delay=1500", {Act::kDelay, 1500}},
      {"hang", {Act::kHang, 0}},
      {"hang=20", {Act::kHang, 20}},
      {"drop", {Act::kDrop, 0}},
      {"flip=17", {Act::kFlip, 17}},
      {"async-error=ncclRemoteError", {Act::kAsyncError, 6}}};
  for (const auto& [text, expected] : acts) {
    const Rule rule = Read("ncclAllReduce:then-on,rank=all," + text)[0];
    EXPECT_EQ(rule.act, expected.first) << text;
    EXPECT_EQ(rule.value, expected.second) << text;
    EXPECT_TRUE(rule.then_on);
    EXPECT_EQ(rule.rank, std::nullopt);
  }
}

TEST(InterposeRule, NamesErrorsOfTheDriverAndOfPosix) {
  EXPECT_EQ(Read("cuMemCreate:error=cudaErrorMemoryAllocation")[0].value, 2);
  const Rule rule = Read("posix/io/rw/write:error=ENOSPC,call=2")[0];
  EXPECT_EQ(rule.function, Function::kPosix);
  EXPECT_EQ(rule.point, "posix/io/rw/write");
  EXPECT_EQ(rule.value, 28);
  EXPECT_EQ(NameOfError(Family::kPosix, 28), "ENOSPC");
  EXPECT_EQ(NameOfError(Family::kNccl, 6), "ncclRemoteError");
  EXPECT_EQ(NameOfError(Family::kCuda, 998), "998");
}

TEST(InterposeRule, RefusesWhatIsWritten) {
  ExpectRefused("", "a rule is empty");
  ExpectRefused("ncclAllReduce:drop;", "a rule is empty");
  ExpectRefused(";ncclAllReduce:drop", "a rule is empty");
  ExpectRefused("ncclAllreduce:drop", "the function 'ncclAllreduce'");
  ExpectRefused(":drop", "the function ''");
  ExpectRefused("posix/:error=EIO", "the function 'posix/'");
  ExpectRefused("posix/io/*:error=EIO", "the function 'posix/io/*'");
  ExpectRefused("ncclAllReduce", "it does nothing");
  ExpectRefused("ncclAllReduce:call=2", "it does nothing");
  ExpectRefused("ncclAllReduce:", "'': expected error=CODE");
  ExpectRefused("ncclAllReduce:drop,", "'': expected error=CODE");
  ExpectRefused("ncclAllReduce:dorp", "'dorp': expected error=CODE");
  ExpectRefused("ncclAllReduce:drop,then-on=1", "'then-on=1': expected");
  ExpectRefused("ncclAllReduce:drop,call=1,call=2", "'call' is given twice");
  ExpectRefused("ncclAllReduce:drop,hang", "'hang' is a second act");
  ExpectRefused("ncclAllReduce:drop=1", "'drop' takes no value");
  ExpectRefused("ncclAllReduce:dr\nop", "'dr\\x0aop'");
}

TEST(InterposeRule, RefusesNumbersOutOfRange) {
  ExpectRefused("ncclAllReduce:drop,call=-1", "'-1': expected a whole number from 0");
  ExpectRefused("ncclAllReduce:drop,call=4294967297", "to 4294967296");
  ExpectRefused("ncclAllReduce:drop,call=1x", "'1x'");
  ExpectRefused("ncclAllReduce:drop,call", "the call's number ''");
  ExpectRefused("ncclAllReduce:drop,rank=", "the rank ''");
  ExpectRefused("ncclAllReduce:drop,bytes=99999999999999999999", "the number of bytes");
  ExpectRefused("ncclAllReduce:delay=0", "the delay in milliseconds '0'");
  ExpectRefused("ncclAllReduce:delay", "the delay in milliseconds ''");
  ExpectRefused("ncclAllReduce:hang=86401", "to 86400");
  ExpectRefused("ncclAllReduce:flip", "the bit ''");
  ExpectRefused("ncclAllReduce:error=0", "'0': expected a whole number from 1 to 99");
  ExpectRefused("cudaMalloc:error=1000", "from 1 to 999");
}

TEST(InterposeRule, RefusesErrorsOfOtherLibraries) {
  ExpectRefused("ncclAllReduce:error=cudaErrorUnknown", "such as ncclSystemError");
  ExpectRefused("cudaMalloc:error=ncclSystemError", "such as cudaErrorMemoryAllocation");
  ExpectRefused("posix/io/rw/write:error=ENOSUCH", "such as ENOSPC");
  ExpectRefused("cudaMalloc:error", "the error ''");
}

TEST(InterposeRule, RefusesWhatCannotBeDone) {
  ExpectRefused("cudaMalloc:drop", "cannot be left out");
  ExpectRefused("ncclCommInitRank:drop", "cannot be left out");
  ExpectRefused("ncclCommGetAsyncError:drop", "cannot be left out");
  ExpectRefused("cudaMalloc:flip=0", "has no result");
  ExpectRefused("ncclSend:flip=0", "has no result");
  ExpectRefused("cudaMemcpy:async-error=6",
                "'cudaMemcpy:async-error=6': cudaMemcpy is not on a communicator");
  ExpectRefused("ncclGroupEnd:async-error=6", "not on a communicator");
  ExpectRefused("posix/io/rw/write:drop", "take error=ERRNO");
  ExpectRefused("posix/io/rw/write:error=EIO,bytes=3", "take error=ERRNO");
}

TEST(InterposeRule, RefusesMoreThanItCounts) {
  std::string text = "cudaMalloc:error=2";
  for (int i = 1; i < kRulesMax; ++i) text += ";cudaMalloc:error=2";
  EXPECT_EQ(Read(text).size(), static_cast<size_t>(kRulesMax));
  ExpectRefused(text + ";cudaMalloc:error=2", "65 rules: expected at most 64");
}

}  // namespace
}  // namespace shardproof::interpose
