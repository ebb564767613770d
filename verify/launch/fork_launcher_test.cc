#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "verify/evidence/reader.h"
#include "verify/fault/fault.h"
#include "verify/launch/launcher.h"
#include "verify/launch/rank_processes.h"
#include "verify/oracle/fixture_files.h"

namespace shardproof {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ForkLauncherTest : public testing::Test {
 protected:
  ForkLauncherTest() {
    case_.mesh = {{"dp_shard", 2}};
    case_.deadline_ms = 30000;
    case_.bucket_bytes = 64;
    case_.model.tensors = {{.name = "embed.weight", .shape = {5, 3}},
                           {.name = "scale", .dtype = "BF16", .shape = {}},
                           {.name = "head.weight", .dtype = "F64", .shape = {3}}};
    std::filesystem::create_directory(directory_ / "source");
  }

  /// Runs the values phase of the case, with `fault` striking.
  std::vector<RankExit> Launch(const std::string& fault = "", const std::string& where = "") {
    if (!fault.empty()) case_.faults = {{fault, where}};
    PhaseRun run;
    run.test_case = case_;
    run.phase = PlanPhases(case_)[0];
    run.source = directory_ / "source";
    run.save_to = directory_ / "saved";
    run.evidence = directory_ / "values";
    EXPECT_TRUE(oracle::WriteSynthetic(case_, run.source).ok());
    run.locations = oracle::Locate(run.source).value();
    for (const FaultCase& asked : case_.faults) {
      EXPECT_TRUE(FindFault(asked.id).value().check(case_, run.locations, asked.where).ok());
    }
    return Launched(run);
  }

  std::vector<RankExit> Launched(const PhaseRun& run) {
    const auto launcher = MakeForkLauncher();
    EXPECT_EQ(launcher->CannotRun(run.phase), "");
    const auto begin = std::chrono::steady_clock::now();
    auto exits = launcher->Launch(run);
    took_ = std::chrono::steady_clock::now() - begin;
    EXPECT_TRUE(exits.ok());
    return exits.ok() ? exits.value() : std::vector<RankExit>();
  }

  RankEvidence Left(int64_t rank) {
    RankEvidence left;
    left.rank = rank;
    left.world_size = 2;
    uint64_t budget = 1 << 20;
    const std::string stem = directory_ / ("values/rank_" + std::to_string(rank));
    ReadRank(stem, "rank", budget, left);
    return left;
  }

  Case case_;
  oracle::TemporaryDirectory directory_;
  std::chrono::steady_clock::duration took_{};
};

TEST_F(ForkLauncherTest, EveryRankEndsWellAndLeavesClosedEvidence) {
  const auto exits = Launch();
  ASSERT_EQ(exits.size(), 2u);
  for (int64_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(exits[rank].exit, "ok") << exits[rank].stderr_tail;
    EXPECT_THAT(exits[rank].stderr_tail, IsEmpty());
    const RankEvidence left = Left(rank);
    EXPECT_EQ(left.damage, "");
    EXPECT_TRUE(left.closed);
    EXPECT_THAT(left.errors, IsEmpty());
    for (const Stage stage : {Stage::kBuilt, Stage::kLoaded, Stage::kSharded, Stage::kMaterialized,
                              Stage::kReady, Stage::kSaved, Stage::kRestored}) {
      ASSERT_NE(left.Stage(stage), nullptr) << NameOf(stage);
      EXPECT_TRUE(left.Stage(stage)->complete) << NameOf(stage);
    }
  }
  const auto saved = oracle::Locate(directory_ / "saved");
  ASSERT_TRUE(saved.ok());
  const auto source = oracle::Locate(directory_ / "source");
  ASSERT_EQ(saved.value().size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(
        oracle::ReadBytes(directory_ / "saved", saved.value()[i], 0, saved.value()[i].byte_length)
            .value(),
        oracle::ReadBytes(directory_ / "source", source.value()[i], 0,
                          source.value()[i].byte_length)
            .value());
  }
  EXPECT_FALSE(std::filesystem::exists(directory_ / "values/rendezvous"));
}

TEST_F(ForkLauncherTest, EmptiesTheEvidenceOfAnEarlierLaunch) {
  std::filesystem::create_directory(directory_ / "values");
  std::ofstream(directory_ / "values/rank_7.facts.jsonl") << "stale\n";
  Launch();
  EXPECT_FALSE(std::filesystem::exists(directory_ / "values/rank_7.facts.jsonl"));
}

TEST_F(ForkLauncherTest, AKilledRankIsASignalAndTheOtherSaysWhomItMissed) {
  const auto exits = Launch("rank/kill", "1@sharded");
  ASSERT_EQ(exits.size(), 2u);
  EXPECT_EQ(exits[1].exit, "signal 9");
  EXPECT_EQ(exits[0].exit, "exit 1");
  EXPECT_THAT(exits[0].stderr_tail, HasSubstr("rank 0: "));
  EXPECT_FALSE(Left(1).closed);
  ASSERT_EQ(Left(1).faults.size(), 1u) << "a fault is on record before it acts";
  EXPECT_EQ(Left(1).faults[0].id, "rank/kill");
  ASSERT_EQ(Left(0).errors.size(), 1u);
  EXPECT_EQ(Left(0).errors[0].code, "peer");
  EXPECT_TRUE(Left(0).closed);
  EXPECT_LT(took_, std::chrono::seconds(20));
}

TEST_F(ForkLauncherTest, AStoppedRankHangsAndIsEndedByTheDeadline) {
  case_.deadline_ms = 3000;
  const auto exits = Launch("rank/stop", "1@materialized");
  ASSERT_EQ(exits.size(), 2u);
  EXPECT_EQ(exits[1].exit, "hang");
  EXPECT_EQ(exits[0].exit, "exit 1") << "it gives up before the launcher does";
  EXPECT_EQ(Left(0).errors.at(0).code, "peer");
  EXPECT_EQ(Left(0).errors.at(0).stage, "ready");
  EXPECT_GT(took_, std::chrono::milliseconds(2000));
  EXPECT_LT(took_, std::chrono::seconds(20));
}

TEST_F(ForkLauncherTest, AFullDiskFailsEveryRankAndSavesNothing) {
  const auto exits = Launch("file/enospc", "0:1");
  ASSERT_EQ(exits.size(), 2u);
  EXPECT_EQ(exits[0].exit, "exit 1");
  EXPECT_EQ(exits[1].exit, "exit 1");
  EXPECT_THAT(exits[1].stderr_tail, HasSubstr("No space left on device"));
  EXPECT_THAT(exits[0].stderr_tail, HasSubstr("rank 1 failed"));
  EXPECT_EQ(Left(1).errors.at(0).code, "failed");
  EXPECT_EQ(Left(0).errors.at(0).code, "peer");
  EXPECT_FALSE(std::filesystem::exists(directory_ / "saved"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "saved.saving"));
}

TEST_F(ForkLauncherTest, BadInputIsExitCodeTwoOnEveryRank) {
  PhaseRun run;
  run.test_case = case_;
  run.phase = PlanPhases(case_)[0];
  run.source = directory_ / "nowhere";
  run.save_to = directory_ / "saved";
  run.evidence = directory_ / "values";
  const auto exits = Launched(run);
  ASSERT_EQ(exits.size(), 2u);
  for (const RankExit& exit : exits) {
    EXPECT_EQ(exit.exit, "exit 2");
    EXPECT_THAT(exit.stderr_tail, HasSubstr("nowhere: has neither"));
  }
}

TEST_F(ForkLauncherTest, EvidenceThatCannotBeWrittenIsBadInput) {
  PhaseRun run;
  run.test_case = case_;
  run.phase = PlanPhases(case_)[0];
  std::ofstream(directory_ / "file") << "no directory";
  run.evidence = directory_ / "file/values";
  const auto exits = MakeForkLauncher()->Launch(run);
  ASSERT_FALSE(exits.ok());
  EXPECT_EQ(exits.error().code, ErrorCode::kBadInput);
}

/// A rank that computes for half a second, on the first processor that it may use, and leaves
/// nothing on record meanwhile.
[[noreturn]] void Compute(const PhaseRun& run, int64_t rank) {
  std::ofstream(fmt::format("{}/rank_{}.facts.jsonl", run.evidence, rank)) << "begun\n";
  cpu_set_t allowed, first;
  ::sched_getaffinity(0, sizeof(allowed), &allowed);
  CPU_ZERO(&first);
  for (int cpu = 0; CPU_COUNT(&first) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &first);
  }
  ::sched_setaffinity(0, sizeof(first), &first);
  while (std::clock() < CLOCKS_PER_SEC / 2) {
  }
  ::_exit(0);
}

TEST_F(ForkLauncherTest, RanksThatWaitForAProcessorDoNotHang) {
  case_.deadline_ms = 1000;
  case_.mesh = {{"dp_shard", 4}};
  PhaseRun run;
  run.test_case = case_;
  run.phase = PlanPhases(case_)[0];
  run.evidence = directory_ / "values";
  ASSERT_TRUE(MakeEvidenceDirectory(run).ok());
  ForkedProcesses processes([&](int64_t rank) { Compute(run, rank); });
  const auto exits = LaunchRanks(run, processes);
  ASSERT_TRUE(exits.ok());
  for (const RankExit& exit : exits.value()) EXPECT_EQ(exit.exit, "ok");
}

TEST(RankTimeout, ComesBeforeTheLaunchersDeadline) {
  Case test_case;
  for (const uint64_t deadline : {1000, 3000, 60000}) {
    test_case.deadline_ms = deadline;
    EXPECT_LT(RankTimeout(test_case).count(), static_cast<int64_t>(deadline));
  }
}

}  // namespace
}  // namespace shardproof
