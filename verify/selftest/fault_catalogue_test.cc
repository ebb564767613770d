// Faults where they can strike, each place in turn: every call of every kind, every stage, every
// collective. What comes of each is judged as the fault states it; a place where it does not strike
// ends a row, and a row in which nothing was struck is a failure.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <functional>

#include "verify/case/case.h"
#include "verify/faults/fault.h"
#include "verify/process/scratch_directory.h"
#include "verify/run/subject.h"
#include "verify/run/verify_run.h"

namespace shardproof {
namespace {

constexpr int64_t kCallsMax = 400;  // a row that is longer does not end
constexpr uint64_t kEndWithinMs = 10000;

enum class Outcome { kAsStated, kNeverStruck, kWrong };

/// A model of two uneven tensors and a buffer on two ranks.
constexpr const char* kModel = R"("model": {"files": 2, "tensors": [
  {"name": "a.weight", "dtype": "F32", "shape": [5, 3]},
  {"name": "a.table", "kind": "buffer", "dtype": "BF16", "shape": [7]},
  {"name": "b.weight", "dtype": "BF16", "shape": [4, 6]}]}, "mesh": [{"name": "dp_shard", "size": 2}])";

Case CaseOf(const std::string& more) {
  auto parsed = ParseCaseText(
      fmt::format(R"({{"schema": 1, "why": "faults, place by place", "as_stated": true, {}{}}})",
                  kModel, more));
  EXPECT_TRUE(parsed.ok()) << (parsed.ok() ? "" : parsed.error().message);
  return parsed.value();
}

/// Loads, shards, saves and restores.
Case Loading(const std::string& transport) {
  return CaseOf(fmt::format(R"(, "transport": "{}")", transport));
}

/// Takes steps and saves after each, a part of the work being the host's.
Case Training(const std::string& transport, const std::string& format) {
  return CaseOf(fmt::format(
      R"(, "transport": "{}", "steps": 3, "training": {{"save_every": 1, "keep": 1,
         "offload": 0.5, "format": "{}"}})",
      transport, format));
}

Outcome Try(Case test_case, const std::string& id, const std::string& where) {
  const std::string name = fmt::format("{}@{}", id, where);
  test_case.faults = {{id, where}};
  static const auto scratch = ScratchDirectory::Make();
  if (!scratch.ok()) {
    ADD_FAILURE() << scratch.error().message;
    return Outcome::kWrong;
  }
  const std::string directory = scratch.value()->path() + "/run";
  std::filesystem::remove_all(directory);
  std::filesystem::create_directory(directory);
  const auto launcher = test_case.transport == "sim" ? MakeSimLauncher(true) : MakeForkLauncher();
  VerifyOptions options;
  options.subject.name = kReference;
  options.directory = directory;
  options.measures_memory = false;
  const auto result = Verify(test_case, *launcher, options);
  if (!result.ok()) {
    ADD_FAILURE() << name << ": " << result.error().message;
    return Outcome::kWrong;
  }
  for (const PropertyResult& property : result.value().properties) {
    if (property.id != "fault.every_fault_fires") continue;
    if (property.judgement.verdict() == Verdict::kInconclusive) return Outcome::kNeverStruck;
  }
  if (result.value().verdict == Verdict::kPass) return Outcome::kAsStated;
  std::string why = result.value().verdict == Verdict::kFail ? "" : "inconclusive";
  for (const Finding* finding : result.value().Findings()) why += "\n  " + finding->message;
  ADD_FAILURE() << name << ": not as stated: " << why;
  return Outcome::kWrong;
}

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

class EveryCallTest : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryCallTest, OfALoadAndASaveAndOfATrainingJob) {
  int64_t struck = 0;
  for (const Case& test_case :
       {Loading("sim"), Training("sim", "dcp"), Training("sim", "safetensors")}) {
    struck += EveryCall(test_case, GetParam());
  }
  EXPECT_GT(struck, 0);
  std::printf("%s struck at %d places\n", GetParam().c_str(), static_cast<int>(struck));
}

std::string NameOfTest(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& letter : name) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Faults, EveryCallTest, ::testing::ValuesIn(FaultsOfCalls()), NameOfTest);

TEST(DeviceMemory, OfAnySize) {
  for (const int64_t bytes : {0, 16, 40}) {
    for (const int rank : {0, 1}) {
      const std::string where = fmt::format("{}:{}", bytes, rank);
      EXPECT_EQ(Try(Loading("sim"), "memory/device", where), Outcome::kAsStated) << where;
    }
  }
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

/// At every stage that a job reaches, on every rank, over real processes.
void AtEveryStage(const std::string& id, const std::vector<int>& ranks) {
  for (const int rank : ranks) {
    for (const char* stage :
         {"built", "loaded", "sharded", "materialized", "ready", "saved", "restored"}) {
      Case loading = Loading("gloo");
      // Four ranks: some are no neighbours of the one that is lost.
      loading.mesh = {{"dp_replicate", 2}, {"dp_shard", 2}};
      loading.deadline_ms = kEndWithinMs;
      EXPECT_EQ(Try(loading, id, fmt::format("{}@{}", rank, stage)), Outcome::kAsStated);
    }
    for (const char* stage : {"stepped@1", "saved@1", "stepped@2", "saved@2", "stepped@3"}) {
      const std::string where = fmt::format("{}@{}", rank, stage);
      Case training = Training("gloo", "dcp");
      training.deadline_ms = kEndWithinMs;
      EXPECT_EQ(Try(training, id, where), Outcome::kAsStated) << where;
    }
  }
}

TEST(EveryStage, KilledAtIt) { AtEveryStage("rank/kill", {0, 1}); }
TEST(EveryStage, LeftAtIt) { AtEveryStage("rank/leave", {0, 1}); }
TEST(EveryStage, SlowAtIt) { AtEveryStage("rank/slow", {1}); }
TEST(EveryStage, StoppedAtIt) { AtEveryStage("rank/stop", {1}); }

}  // namespace
}  // namespace shardproof
