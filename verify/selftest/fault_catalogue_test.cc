// Faults where they can strike, each place in turn: every call of every kind, every stage, every
// collective. What comes of each is judged as the fault states it; a place where it does not strike
// ends a row, and a row in which nothing was struck is a failure.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>
#include <chrono>
#include <functional>

#include "verify/fault/fault.h"
#include "verify/selftest/fault_cases.h"

namespace shardproof {
namespace {

constexpr int64_t kCallsMax = 400;  // a row that is longer does not end
constexpr uint64_t kEndWithinMs = 10000;

/// Why a fault cannot strike on this machine.
std::string WhyNot(const std::string& id) {
  Case test_case;
  test_case.faults = {{id, ""}};
  return WhyCannotStrike(test_case);
}

#define SKIP_WHERE_IT_CANNOT(id) \
  if (const std::string why = WhyNot(id); !why.empty()) GTEST_SKIP() << "skipped: " << why

/// Goes from place to place until one is never reached. \returns how many were struck.
int64_t Row(const Case& test_case, const std::string& id,
            const std::function<std::string(int64_t)>& place) {
  int64_t struck = 0;
  for (; struck < kCallsMax; ++struck) {
    const Outcome outcome = Try(test_case, id, place(struck));
    if (outcome == Outcome::kNeverStruck) return struck;
    if (outcome == Outcome::kWrong) break;
  }
  EXPECT_LT(struck, kCallsMax) << id << ": strikes without end";
  return struck;
}

/// Every call of rank 0 and of the last.
int64_t EveryCall(const Case& test_case, const std::string& id) {
  int64_t struck = 0;
  for (const int rank : {0, 1}) {
    struck += Row(test_case, id, [&](int64_t call) { return fmt::format("{}:{}", call, rank); });
  }
  return struck;
}

/// Those that strike the n-th call of a kind, and of which ranks may end.
std::vector<std::string> FaultsOfCalls() {
  std::vector<std::string> ids;
  for (const Fault& fault : AllFaults()) {
    if (fault.where == kTriggerHelp && MayEnd(fault.model)) ids.push_back(fault.id);
  }
  return ids;
}

std::string NameOfTest(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& letter : name) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  }
  return name;
}

class EveryCallTest : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryCallTest, OfALoadAndASaveAndOfATrainingJob) {
  int64_t struck = 0;
  for (const Case& test_case : {Loading("sim"), Training("sim", "dcp")}) {
    struck += EveryCall(test_case, GetParam());
  }
  EXPECT_GT(struck, 0);
  std::printf("%s struck at %d places\n", GetParam().c_str(), static_cast<int>(struck));
}

INSTANTIATE_TEST_SUITE_P(Faults, EveryCallTest, ::testing::ValuesIn(FaultsOfCalls()), NameOfTest);

TEST(Nightly, EveryCallOfATrainingJobThatSavesSafetensors) {
  int64_t struck = 0;
  for (const std::string& id : FaultsOfCalls()) {
    struck += EveryCall(Training("sim", "safetensors"), id);
  }
  EXPECT_GT(struck, 0);
  std::printf("struck at %d places\n", static_cast<int>(struck));
}

/// Ids of those that strike the reference, and of which `wanted` holds.
std::vector<std::string> FaultsWith(const std::function<bool(const Fault&)>& wanted) {
  std::vector<std::string> ids;
  for (const Fault& fault : AllFaults()) {
    if (fault.arm && wanted(fault)) ids.push_back(fault.id);
  }
  return ids;
}

class StatedPlacesTest : public ::testing::TestWithParam<std::string> {};

/// The same load of a source in DCP's format.
Case LoadingDcp() {
  Case test_case = Loading("sim");
  test_case.model.format = "dcp";
  return test_case;
}

/// The case that a fault can strike.
Case CaseFor(const Fault& fault, const std::string& where) {
  const Case usual = Loading("sim");
  if (fault.check(usual, {}, where).ok()) return usual;
  for (const Case& other : {Loading("gloo"), LoadingDcp(), FromConfig()}) {
    if (fault.check(other, {}, where).ok()) return other;
  }
  return usual;
}

TEST_P(StatedPlacesTest, OfALoadAndASave) {
  const Fault fault = FindFault(GetParam()).value();
  SKIP_WHERE_IT_CANNOT(fault.id);
  for (const std::string& where : fault.tried_at) {
    EXPECT_EQ(Try(CaseFor(fault, where), fault.id, where), Outcome::kAsStated) << where;
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, StatedPlacesTest,
                         ::testing::ValuesIn(FaultsWith([](const Fault& fault) {
                           return !fault.tried_at.empty();
                         })),
                         NameOfTest);

TEST(Damage, OfWhatArrivesIsSeen) {
  const int64_t struck = EveryCall(Loading("sim"), "comm/flip");
  EXPECT_GT(struck, 4);
}

TEST(Delay, OfADisk) {
  for (const int rank : {0, 1}) {
    const std::string where = fmt::format("0:{}", rank);
    EXPECT_EQ(Try(Loading("sim"), "file/slow", where), Outcome::kAsStated) << where;
    EXPECT_EQ(Try(Training("gloo", "dcp"), "file/slow", where), Outcome::kAsStated) << where;
  }
}

/// Faults that strike the reference are tried by calls, at a moment, or where they state; no
/// reference makes the calls of the others: selftest.interpose* has them.
TEST(Catalogue, TriesEveryFault) {
  const std::vector<std::string> tried = FaultsWith([](const Fault& fault) {
    return fault.where == kTriggerHelp || fault.at_a_moment || !fault.tried_at.empty();
  });
  EXPECT_EQ(tried, FaultsWith([](const Fault&) { return true; }));
  for (const Fault& fault : AllFaults()) EXPECT_TRUE(fault.arm || fault.in_subject) << fault.id;
}

/// Before every collective of every rank.
void BeforeEveryCollective(const std::string& id) {
  for (const Case& test_case : {Loading("sim"), Training("sim", "dcp")}) {
    for (const int rank : {0, 1}) {
      EXPECT_GT(Row(test_case, id, [&](int64_t n) { return fmt::format("{}@#{}", rank, n); }), 5);
    }
  }
}

TEST(EveryCollective, KilledBeforeIt) { BeforeEveryCollective("rank/kill"); }
TEST(EveryCollective, LeftBeforeIt) { BeforeEveryCollective("rank/leave"); }

/// As it is for four ranks over real processes, which end within `deadline_ms`: some are no
/// neighbours of the one that is lost.
Case OnFourRanks(Case test_case, uint64_t deadline_ms) {
  test_case.mesh = {{"dp_replicate", 2}, {"dp_shard", 2}};
  test_case.deadline_ms = deadline_ms;
  return test_case;
}

void AtPlaces(const Case& test_case, const std::string& id,
              const std::vector<std::string>& places) {
  for (const std::string& where : places) {
    EXPECT_EQ(Try(test_case, id, where), Outcome::kAsStated) << where;
  }
}

/// At every stage that a job reaches, on every rank, over real processes.
void AtEveryStage(const std::string& id, const std::vector<int>& ranks) {
  for (const int rank : ranks) {
    for (const char* stage :
         {"built", "loaded", "sharded", "materialized", "ready", "saved", "restored"}) {
      AtPlaces(OnFourRanks(Loading("gloo"), kEndWithinMs), id, {fmt::format("{}@{}", rank, stage)});
    }
    for (const char* stage : {"stepped@1", "saved@1", "stepped@2", "saved@2", "stepped@3"}) {
      AtPlaces(OnFourRanks(Training("gloo", "dcp"), kEndWithinMs), id,
               {fmt::format("{}@{}", rank, stage)});
    }
  }
}

class MomentTest : public ::testing::TestWithParam<std::string> {};

TEST_P(MomentTest, OfTheExample) {
  const Fault fault = FindFault(GetParam()).value();
  SKIP_WHERE_IT_CANNOT(fault.id);
  const bool trains = fault.example.where.find("stepped") != std::string::npos;
  AtPlaces(OnFourRanks(trains ? Training("gloo", "dcp") : Loading("gloo"), kEndWithinMs), fault.id,
           {fault.example.where});
}

INSTANTIATE_TEST_SUITE_P(Faults, MomentTest, ::testing::ValuesIn(FaultsWith([](const Fault& fault) {
                           return fault.at_a_moment;
                         })),
                         NameOfTest);

/// Time that a rank waits for one that is cut off passes in full.
constexpr uint64_t kCutOffEndWithinMs = 4000;

TEST(CutOff, BlackHoled) {
  SKIP_WHERE_IT_CANNOT("net/blackhole");
  AtPlaces(OnFourRanks(Loading("gloo"), kCutOffEndWithinMs), "net/blackhole",
           {"1@sharded", "0@ready"});
  AtPlaces(OnFourRanks(Training("gloo", "dcp"), kCutOffEndWithinMs), "net/blackhole",
           {"3@saved@2"});
}

TEST(CutOff, OneOfTwoIsBlackHoled) {
  SKIP_WHERE_IT_CANNOT("net/blackhole");
  Case loading = Loading("gloo");
  loading.deadline_ms = kCutOffEndWithinMs;
  AtPlaces(loading, "net/blackhole", {"1@materialized"});
}

TEST(CutOff, Reset) {
  AtPlaces(OnFourRanks(Loading("gloo"), kCutOffEndWithinMs), "net/reset", {"1@sharded", "2@saved"});
  AtPlaces(OnFourRanks(Training("gloo", "dcp"), kCutOffEndWithinMs), "net/reset", {"0@stepped@1"});
}

TEST(Nightly, ReachedByNobodyAtEveryStage) {
  SKIP_WHERE_IT_CANNOT("net/blackhole");
  for (const char* id : {"net/blackhole", "net/reset"}) {
    for (const int rank : {0, 1}) {
      for (const char* stage :
           {"built", "loaded", "sharded", "materialized", "ready", "saved", "restored"}) {
        AtPlaces(OnFourRanks(Loading("gloo"), kEndWithinMs), id,
                 {fmt::format("{}@{}", rank, stage)});
      }
      for (const char* stage : {"stepped@1", "saved@1", "stepped@2", "saved@2", "stepped@3"}) {
        AtPlaces(OnFourRanks(Training("gloo", "dcp"), kEndWithinMs), id,
                 {fmt::format("{}@{}", rank, stage)});
      }
    }
  }
}

TEST(EveryStage, OutOfMemoryAtIt) {
  SKIP_WHERE_IT_CANNOT("memory/oom-kill");
  AtPlaces(OnFourRanks(Loading("gloo"), kEndWithinMs), "memory/oom-kill",
           {"0@built", "1@loaded", "2@ready", "1@saved", "3@restored"});
  AtPlaces(OnFourRanks(Training("gloo", "dcp"), kEndWithinMs), "memory/oom-kill",
           {"1@stepped@1", "0@saved@2"});
}

TEST(EveryStage, StoreGoneAtIt) {
  AtPlaces(OnFourRanks(Loading("gloo"), kEndWithinMs), "store/gone",
           {"0@built", "1@sharded", "0@ready", "1@saved", "0@restored"});
  AtPlaces(OnFourRanks(Training("gloo", "dcp"), kEndWithinMs), "store/gone", {"1@stepped@2"});
}

TEST(EveryStage, KilledAtItWhereTheStoreIsGone) {
  for (const char* where : {"1@ready", "0@saved"}) {
    EXPECT_EQ(Try(OnFourRanks(Loading("gloo"), kEndWithinMs),
                  {{"rank/kill", where}, {"store/gone", "1@sharded"}}),
              Outcome::kAsStated)
        << where;
  }
}

/// Allocations of a rank, evenly spread: `places` of them, after as many calls as it makes are
/// known.
void EvenlySpread(const Case& test_case, int64_t places) {
  int64_t made = 256;  // or somewhat more
  while (Try(test_case, "memory/new", std::to_string(made)) == Outcome::kAsStated) made *= 2;
  EXPECT_GT(made, 1000);
  int64_t struck = 0;
  for (int64_t i = 0; i < places; ++i) {
    const Outcome outcome = Try(test_case, "memory/new", std::to_string(made * i / places + i % 7));
    EXPECT_NE(outcome, Outcome::kWrong);
    struck += outcome == Outcome::kAsStated ? 1 : 0;
  }
  EXPECT_GE(struck, places / 2 - 1);
  std::printf("memory/new struck at %d places of %d looked at, up to allocation %d\n",
              static_cast<int>(struck), static_cast<int>(places), static_cast<int>(made));
}

TEST(AnyAllocation, OfALoadAndASave) {
  SKIP_WHERE_IT_CANNOT("memory/new");
  EvenlySpread(Loading("gloo"), 16);
}

TEST(AnyAllocation, OfATrainingJob) {
  SKIP_WHERE_IT_CANNOT("memory/new");
  EvenlySpread(Training("gloo", "dcp"), 10);
}

TEST(Nightly, EveryAllocation) {
  SKIP_WHERE_IT_CANNOT("memory/new");
  EvenlySpread(Loading("gloo"), 1500);
  EvenlySpread(Training("gloo", "safetensors"), 600);
}

TEST(EveryStage, KilledAtIt) { AtEveryStage("rank/kill", {0, 3}); }
TEST(EveryStage, LeftAtIt) { AtEveryStage("rank/leave", {0, 2}); }
TEST(EveryStage, SlowAtIt) { AtEveryStage("rank/slow", {1}); }
TEST(EveryStage, StoppedAtIt) { AtEveryStage("rank/stop", {1}); }

TEST(Nightly, OtherRanksAtEveryStage) {
  AtEveryStage("rank/kill", {1, 2});
  AtEveryStage("rank/leave", {1, 3});
  AtEveryStage("rank/slow", {0});
  AtEveryStage("rank/stop", {0});
}

/// What ranks do, each of them at each place, in one table: seconds until all ranks had ended.
class TableOfRanks {
 public:
  TableOfRanks() {
    std::string line = fmt::format("{:<18}", "seconds to the end");
    for (const std::string& id : kIds) {
      for (const int rank : kRanks) line += fmt::format("{:>14}", fmt::format("{} {}", id, rank));
    }
    std::printf("%s\n", line.c_str());
  }

  /// One row. \returns how many were struck; the others never came there.
  int Row(const Case& test_case, const std::string& name, const std::string& place) {
    std::string line = fmt::format("{:<18}", name);
    int struck = 0;
    for (const std::string& id : kIds) {
      for (const int rank : kRanks) {
        const auto begun = std::chrono::steady_clock::now();
        const Outcome outcome = Try(test_case, id, fmt::format("{}@{}", rank, place));
        const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begun;
        struck += outcome == Outcome::kNeverStruck ? 0 : 1;
        line += fmt::format("{:>14}", outcome == Outcome::kWrong ? "WRONG"
                                      : outcome == Outcome::kNeverStruck
                                          ? "-"
                                          : fmt::format("{:.2f}", passed.count()));
      }
    }
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
    return struck;
  }

  int Columns() const { return static_cast<int>(kIds.size() * kRanks.size()); }

 private:
  const std::vector<std::string> kIds = {"rank/kill", "rank/stop", "rank/leave", "rank/slow"};
  const std::vector<int> kRanks = {0, 1};
};

/// A rank that stops costs all of it, and there are many.
constexpr uint64_t kTableEndWithinMs = 6000;

TEST(Nightly, EveryRankAndMoment) {
  TableOfRanks table;
  const auto rows = [&](Case test_case, const std::string& what,
                        const std::vector<std::string>& stages) {
    test_case.deadline_ms = kTableEndWithinMs;
    for (const std::string& stage : stages) {
      EXPECT_EQ(table.Row(test_case, what + " " + stage, stage), table.Columns()) << stage;
    }
    int64_t collective = 0;
    while (collective < kCallsMax) {
      const std::string place = fmt::format("#{}", collective);
      if (table.Row(test_case, what + " " + place, place) == 0) break;
      ++collective;
    }
    EXPECT_GT(collective, 5) << what;
    EXPECT_LT(collective, kCallsMax) << what;
  };
  rows(Loading("gloo"), "load",
       {"built", "loaded", "sharded", "materialized", "ready", "saved", "restored"});
  rows(Training("gloo", "dcp"), "train",
       {"stepped@1", "saved@1", "stepped@2", "saved@2", "stepped@3"});
}

}  // namespace
}  // namespace shardproof
