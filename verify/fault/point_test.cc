#include "verify/fault/point.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <vector>

#include "verify/fault/fault.h"

namespace shardproof {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Case FourRanks() {
  Case test_case;
  test_case.mesh = {{"dp_shard", 4}};
  return test_case;
}

/// Which of calls 0, 1, ... strike, each of `bytes` about `what`.
std::vector<int> Struck(FaultPoint& point, int calls, const FaultCall& call = {}) {
  std::vector<int> struck;
  for (int i = 0; i < calls; ++i) {
    if (point.Strikes(call, {.detail = fmt::format("call {}", i)})) struck.push_back(i);
  }
  return struck;
}

FaultPoint Make(const std::string& where, int64_t rank, bool from_then_on = false,
                std::vector<std::string>* log = nullptr, const std::string& stage = "saved") {
  return FaultPoint({.name = "test/point",
                     .trigger = ParseTrigger(FourRanks(), where).value(),
                     .rank = rank,
                     .from_then_on = from_then_on,
                     .stage = [stage] { return stage; },
                     .log =
                         [log](const FaultRecord& record) {
                           if (log != nullptr) log->push_back(record.detail);
                         }});
}

TEST(FaultPointTest, StrikesTheCallThatIsAskedForAndLogsIt) {
  std::vector<std::string> log;
  FaultPoint point = Make("2:1", 1, false, &log);
  EXPECT_THAT(Struck(point, 5), ElementsAre(2));
  EXPECT_EQ(point.struck(), 1);
  EXPECT_THAT(log, ElementsAre("call 2"));
}

TEST(FaultPointTest, OrEveryOneFromThenOn) {
  FaultPoint point = Make("2:1", 1, true);
  EXPECT_THAT(Struck(point, 5), ElementsAre(2, 3, 4));
}

TEST(FaultPointTest, OnTheLastRankOrTheOneThatIsSaidOrAll) {
  for (int64_t rank = 0; rank < 4; ++rank) {
    FaultPoint last = Make("0", rank), second = Make("call=0,rank=1", rank),
               all = Make("rank=all", rank);
    EXPECT_EQ(Struck(last, 1).size(), rank == 3 ? 1u : 0u);
    EXPECT_EQ(Struck(second, 1).size(), rank == 1 ? 1u : 0u);
    EXPECT_EQ(Struck(all, 1).size(), 1u);
  }
}

TEST(FaultPointTest, CountsOnlyCallsThatMatch) {
  FaultPoint point = Make("what=norm,bytes=10,stage=saved,call=1,rank=0", 0);
  EXPECT_THAT(Struck(point, 3, {"lm_head.weight", 10}), ElementsAre());
  EXPECT_THAT(Struck(point, 3, {"model.norm.weight", 9}), ElementsAre());
  EXPECT_THAT(Struck(point, 3, {"model.norm.weight", 10}), ElementsAre(1));
  FaultPoint elsewhere = Make("stage=ready,rank=0", 0);
  EXPECT_THAT(Struck(elsewhere, 3), ElementsAre());
}

TEST(FaultPointTest, BadTriggersAreRefusedInOneLine) {
  const auto refusal = [](const std::string& where) {
    const auto parsed = ParseTrigger(FourRanks(), where);
    EXPECT_FALSE(parsed.ok()) << where;
    return parsed.ok() ? "" : parsed.error().message;
  };
  EXPECT_THAT(refusal("x"), HasSubstr("the call's number"));
  EXPECT_THAT(refusal("0:4"), HasSubstr("the rank"));
  EXPECT_THAT(refusal("call=-1"), HasSubstr("the call's number"));
  EXPECT_THAT(refusal("when=now"), HasSubstr("expected call=N, rank=R, what=TEXT"));
  EXPECT_THAT(refusal("what="), HasSubstr("expected call=N"));
  EXPECT_THAT(refusal("call=1,call=2"), HasSubstr("'call' is given twice"));
  EXPECT_THAT(refusal("call=1,"), HasSubstr("expected call=N"));
  EXPECT_THAT(refusal("stage=nope"), HasSubstr("expected one of built, loaded"));
  EXPECT_THAT(refusal(""), HasSubstr("the call's number"));
}

/// Tells libfiu something by its pipes, as fiu-ctrl does. \returns its answer.
std::string Tell(const std::string& base, const std::string& command) {
  const std::string pipe = fmt::format("{}-{}", base, ::getpid());
  const int in = ::open((pipe + ".in").c_str(), O_WRONLY);
  const int out = ::open((pipe + ".out").c_str(), O_RDONLY);
  EXPECT_GE(in, 0);
  EXPECT_GE(out, 0);
  const std::string line = command + "\n";
  EXPECT_EQ(::write(in, line.data(), line.size()), static_cast<ssize_t>(line.size()));
  std::array<char, 64> answer{};
  const ssize_t got = ::read(out, answer.data(), answer.size() - 1);
  ::close(in);
  ::close(out);
  return got > 0 ? std::string(answer.data(), static_cast<size_t>(got)) : "";
}

TEST(FaultPointTest, FiuCtrlSwitchesItAtRunTime) {
  const std::string base = testing::TempDir() + "/fiu-ctrl";
  ASSERT_TRUE(ControlPointsBy(base).ok());
  std::vector<std::string> log;
  FaultPoint point({.name = "test/switched",
                    .trigger = ParseTrigger(FourRanks(), kNever).value(),
                    .log = [&](const FaultRecord& one) { log.push_back(one.detail); }});
  EXPECT_THAT(Struck(point, 3), ElementsAre());
  EXPECT_EQ(Tell(base, "enable name=test/switched"), "0\n");
  EXPECT_THAT(Struck(point, 2), ElementsAre(0, 1));
  EXPECT_EQ(Tell(base, "disable name=test/switched"), "0\n");
  EXPECT_THAT(Struck(point, 3), ElementsAre());
  EXPECT_THAT(log, ElementsAre("call 0", "call 1"));
}

TEST(FaultPointTest, PipesThatCannotBeMadeAreBadInput) {
  const Status status = ControlPointsBy(testing::TempDir() + "/no/such/directory/fiu");
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("pipes for fiu-ctrl cannot be made"));
}

}  // namespace
}  // namespace shardproof
