#include "verify/report/memory_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

namespace shardproof {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kMiB = 1 << 20;

RankMemory Rank(int64_t rank, const std::string& host, uint64_t other_mib) {
  RankMemory memory{.rank = rank, .host = host};
  memory.held.stage = "ready";
  memory.held.host = {.anonymous = (400 + other_mib) * kMiB, .shared = 5 * kMiB, .file = kMiB};
  memory.held.proportional = memory.held.host;
  memory.held.peak =
      HeldPeak{.anonymous = (600 + other_mib) * kMiB,
               .interval_ms = 10,
               .stacks_bytes = 590 * kMiB,
               .stacks = {{"torch/serialization.py:9 load", "torch/serialization.py:3 _load",
                           "train.py:30 loaded", "train.py:60 main"}}};
  memory.held.tensors = {{"parameter", "cpu", 100 * kMiB, 100 * kMiB},
                         {"optimizer", "cpu", 50 * kMiB, 50 * kMiB}};
  if (other_mib > 0)
    memory.held.tensors.push_back({"other", "cpu", other_mib * kMiB, other_mib * kMiB});
  return memory;
}

/// \param ranks  of which rank 1 has kept 209 MiB.
std::vector<StageMemory> Stages(int64_t ranks, bool is_sound = false) {
  StageMemory stage{.stage = "ready"};
  for (int64_t rank = 0; rank < ranks; ++rank) {
    stage.ranks.push_back(Rank(rank, "host-a", rank == 1 && !is_sound ? 209 : 0));
  }
  stage.nodes = {{.host = "host-a",
                  .ranks = ranks,
                  .anonymous = 1009 * kMiB,
                  .shared = 5 * kMiB,
                  .file = kMiB,
                  .peak = 1409 * kMiB}};
  return {stage};
}

void ExpectWithin(const std::string& text, size_t columns) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), columns) << line;
}

TEST(MemoryText, TellsWhichRankRetainsHowMuchAfterWhichStage) {
  const std::string text = MemoryText(Stages(2), 0);
  EXPECT_THAT(text, HasSubstr("\n  retained  after `ready`, rank 1 holds 209.0 MiB in tensors that "
                              "are not part of its model, gradients or optimizer\n"));
  EXPECT_THAT(text, HasSubstr("read every 10 ms"));
  EXPECT_THAT(text, HasSubstr("\n  stage of      private    peak  shared   files   model   optim"
                              "   other\n"));
  EXPECT_THAT(text, HasSubstr("\n  ready rank 0    400.0   600.0     5.0     1.0   100.0    50.0"
                              "     0.0\n"));
  EXPECT_THAT(text, HasSubstr("\n        host-a   1009.0  1409.0     5.0     1.0   200.0   100.0"
                              "   209.0\n"));
  EXPECT_THAT(text, HasSubstr("\n  peak      rank 1 held 809.0 MiB before `ready`, 200.0 MiB more "
                              "than at it; at 590.0 MiB it was in torch/serialization.py:9 load, "
                              "from train.py:30 loaded\n"));
}

TEST(MemoryText, IsSilentOfWhatIsRetainedWhereNothingIs) {
  EXPECT_THAT(MemoryText(Stages(2, true), 0), Not(HasSubstr("retained")));
  std::vector<StageMemory> stages = Stages(2);
  stages[0].ranks[1].held.tensors.back() = {"other", "cpu", 15 * kMiB, 15 * kMiB};
  EXPECT_THAT(MemoryText(stages, 0), Not(HasSubstr("retained")));
  EXPECT_EQ(MemoryText({}, 0), "");
}

TEST(MemoryText, OfManyRanksItTellsThreeAndTheSum) {
  const std::string text = MemoryText(Stages(512), 100);
  EXPECT_THAT(text, HasSubstr("least, 0"));
  EXPECT_THAT(text, HasSubstr("median, "));
  EXPECT_THAT(text, HasSubstr("most, 1 "));
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 10);
  ExpectWithin(text, 100);
}

TEST(MemoryText, FitsATerminalWithDevicesAndLargeNumbers) {
  std::vector<StageMemory> stages = Stages(4);
  for (RankMemory& rank : stages[0].ranks) {
    rank.held.host.anonymous = 1800 * 1024 * kMiB;
    rank.held.devices = {{"cuda:0", 70 * 1024 * kMiB, 75 * 1024 * kMiB, 79 * 1024 * kMiB, 0}};
  }
  const std::string text = MemoryText(stages, 100);
  EXPECT_THAT(text, HasSubstr("GiB at each stage"));
  EXPECT_THAT(text, HasSubstr("  1800.0"));
  EXPECT_THAT(text, HasSubstr("    70.0    79.0\n"));
  ExpectWithin(text, 100);
}

TEST(MemoryText, OfManyStagesItTellsTheFirstTheLastAndTheHighest) {
  std::vector<StageMemory> stages;
  for (int step = 1; step <= 1000; ++step) {
    stages.push_back(Stages(2, true)[0]);
    stages.back().stage = "stepped@" + std::to_string(step);
  }
  stages[499].ranks[0].held.peak->anonymous = 9000 * kMiB;
  const std::string text = MemoryText(stages, 100);
  for (const char* name : {"stepped@1 ", "stepped@500 ", "stepped@1000 "})
    EXPECT_THAT(text, HasSubstr(name));
  EXPECT_THAT(text, HasSubstr("994 more stages"));
}

TEST(MemoryText, TellsWhoHoldsIt) {
  std::vector<StageMemory> stages = Stages(2);
  stages[0].ranks[1].held.who = {
      {"holder", "`full` in loaded", 209 * kMiB, 291, {"train.py:30 loaded"}},
      {"python", "Python's own allocations", 48 * kMiB, 1, {"data.py:3"}}};
  const std::string text = MemoryText(stages, 0);
  EXPECT_THAT(text, HasSubstr("\n  who       209.0 MiB in 291 tensors, held by `full` in loaded, "
                              "train.py:30 loaded\n"));
  EXPECT_THAT(text, HasSubstr("48.0 MiB in 1 allocation: Python's own allocations, data.py:3"));
}

TEST(MemoryText, NamesOfOthersCannotSteerATerminal) {
  std::vector<StageMemory> stages = Stages(2);
  stages[0].stage = "a\x1b[2J";
  stages[0].nodes[0].host = "b\nc";
  stages[0].ranks[1].held.peak->stacks = {{"\x1b[2J.py:1 f"}};
  const std::string text = MemoryText(stages, 100);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr("b\\nc"));
}

TEST(LoadingText, SaysWhatEachRankNeeded) {
  EXPECT_EQ(LoadingText({}), "");
  EXPECT_EQ(LoadingText({{.rank = 0, .peak = 512 * kMiB, .plain_peak = 513 * kMiB},
                         {.rank = 1, .peak = 7 * kMiB}}),
            "loading needed: rank 0 512.0 MiB (513.0 MiB by the plain way), rank 1 7.0 MiB");
}

TEST(LoadingText, OfManyRanksHasTheEnds) {
  std::vector<LoadingMemory> ranks;
  for (int64_t rank = 0; rank < 8; ++rank)
    ranks.push_back({.rank = rank, .peak = static_cast<uint64_t>(9 - rank) * kMiB});
  EXPECT_EQ(LoadingText(ranks), "loading needed least and most on: rank 7 2.0 MiB, rank 0 9.0 MiB");
  EXPECT_EQ(LoadingToJson(ranks)[7]["peak_bytes"], 2 * kMiB);
  EXPECT_FALSE(LoadingToJson(ranks)[7].contains("plain_peak_bytes"));
}

TEST(MemoryJson, HasRanksAndNodes) {
  const nlohmann::json json = MemoryToJson(Stages(2));
  ASSERT_EQ(json.size(), 1u);
  EXPECT_EQ(json[0]["stage"], "ready");
  EXPECT_EQ(json[0]["ranks"][1]["tensors"][2]["bytes"], 209 * kMiB);
  EXPECT_EQ(json[0]["ranks"][1]["peak"]["stacks"][0][0], "torch/serialization.py:9 load");
  EXPECT_EQ(json[0]["nodes"][0]["shared_bytes"], 5 * kMiB);
  std::vector<StageMemory> stages = Stages(2);
  stages[0].nodes[0].shared.reset();
  EXPECT_FALSE(MemoryToJson(stages)[0]["nodes"][0].contains("shared_bytes"));
}

}  // namespace
}  // namespace shardproof
