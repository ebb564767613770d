#include "verify/verdict/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

namespace shardproof {
namespace {

using ::testing::ElementsAre;

constexpr uint64_t kMiB = 1 << 20;

/// A stage at which a rank holds 100 MiB of its own and maps the 80 MiB of its node's segment.
HeldRecord Held(const std::string& stage, int64_t sharers) {
  HeldRecord held{.stage = stage};
  held.host = {.anonymous = 100 * kMiB, .shared = 80 * kMiB, .file = 60 * kMiB};
  held.proportional = {.anonymous = 100 * kMiB,
                       .shared = 80 * kMiB / static_cast<uint64_t>(sharers),
                       .file = 60 * kMiB / static_cast<uint64_t>(sharers)};
  held.peak = HeldPeak{.anonymous = 150 * kMiB, .shared = 80 * kMiB};
  held.devices = {{"cuda:0", 10, 20, 30, 40}, {"cuda:1", 1, 2, 3, 4}};
  held.tensors = {
      {"parameter", "cpu", 50, 40}, {"parameter", "cuda:0", 7, 0}, {"other", "cpu", 9, 9}};
  return held;
}

/// Two ranks on host-a, of which one maps the segment alone at host-b's side: three ranks.
Evidence OnTwoNodes() {
  PhaseEvidence phase;
  for (const auto& [rank, host, sharers] :
       {std::tuple<int64_t, const char*, int64_t>{0, "host-a", 2},
        {1, "host-a", 2},
        {2, "host-b", 1}}) {
    RankEvidence evidence{.rank = rank, .world_size = 3, .host = host};
    evidence.held = {Held("ready", sharers)};
    phase.ranks.push_back(std::move(evidence));
  }
  return {.phases = {phase}};
}

TEST(MemoryTest, NodesAddTheirRanksUpAndCountASharedPageOnce) {
  const std::vector<StageMemory> stages = MemoryByStage(OnTwoNodes());
  ASSERT_EQ(stages.size(), 1u);
  ASSERT_EQ(stages[0].nodes.size(), 2u);
  const NodeMemory& a = stages[0].nodes[0];
  EXPECT_EQ(a.host, "host-a");
  EXPECT_EQ(a.ranks, 2);
  EXPECT_EQ(a.anonymous, 200 * kMiB);
  EXPECT_EQ(a.shared, 80 * kMiB);  // 160 MiB would be the one segment twice
  EXPECT_EQ(a.file, 60 * kMiB);
  EXPECT_EQ(a.peak, 300 * kMiB);
  EXPECT_EQ(a.allocated, 22u);
  EXPECT_EQ(a.peak_allocated, 66u);
  const NodeMemory& b = stages[0].nodes[1];
  EXPECT_EQ(b.host, "host-b");
  EXPECT_EQ(b.anonymous, 100 * kMiB);
  EXPECT_EQ(b.shared, 80 * kMiB);
  EXPECT_EQ(b.peak, 150 * kMiB);
}

TEST(MemoryTest, PrivatePagesOfAForkAreCountedOnceToo) {
  Evidence evidence = OnTwoNodes();
  for (int rank : {0, 1}) {  // 60 MiB each are the parent's still
    evidence.phases[0].ranks[static_cast<size_t>(rank)].held[0].proportional->anonymous = 70 * kMiB;
  }
  EXPECT_EQ(MemoryByStage(evidence)[0].nodes[0].anonymous, 140 * kMiB);
}

TEST(MemoryTest, WithoutEveryRanksShareNothingSharedIsAddedUp) {
  Evidence evidence = OnTwoNodes();
  evidence.phases[0].ranks[1].held[0].proportional.reset();
  const std::vector<StageMemory> stages = MemoryByStage(evidence);
  EXPECT_EQ(stages[0].nodes[0].anonymous, 200 * kMiB);
  EXPECT_FALSE(stages[0].nodes[0].shared.has_value());
  EXPECT_FALSE(stages[0].nodes[0].file.has_value());
  EXPECT_EQ(stages[0].nodes[1].shared, 80 * kMiB);
}

TEST(MemoryTest, StagesComeInTheOrderInWhichRanksReachThem) {
  Evidence evidence = OnTwoNodes();
  auto& ranks = evidence.phases[0].ranks;
  const auto stepped = [](int64_t step) {
    HeldRecord held = Held("stepped", 1);
    held.step = step;
    return held;
  };
  ranks[0].held = {Held("ready", 2), stepped(1), stepped(3)};
  ranks[1].held = {Held("ready", 2), stepped(1), Held("saved", 2), stepped(3)};
  std::vector<std::string> names;
  for (const StageMemory& stage : MemoryByStage(evidence)) names.push_back(stage.stage);
  EXPECT_THAT(names, ElementsAre("ready", "stepped@1", "saved", "stepped@3"));
}

TEST(MemoryTest, AStageThatIsReachedAgainKeepsTheHigherPeak) {
  Evidence evidence = OnTwoNodes();
  HeldRecord again = Held("ready", 2);
  again.host.anonymous = 90 * kMiB;
  again.peak->anonymous = 95 * kMiB;
  evidence.phases[0].ranks[0].held.push_back(again);
  const RankMemory rank = MemoryByStage(evidence)[0].ranks[0];
  EXPECT_EQ(rank.held.host.anonymous, 90 * kMiB);
  EXPECT_EQ(rank.Peak(), 150 * kMiB);
}

TEST(MemoryTest, TensorsAreToldApartByWhereTheyAre) {
  const RankMemory rank = MemoryByStage(OnTwoNodes())[0].ranks[0];
  EXPECT_EQ(rank.HostTensors(kOfModel), 40u);
  EXPECT_EQ(rank.DeviceTensors(kOfModel), 7u);
  EXPECT_EQ(rank.HostTensors(kOfTraining), 0u);
  EXPECT_EQ(rank.HostTensors(kOfOthers), 9u);
}

TEST(MemoryTest, OldEvidenceHasNone) { EXPECT_TRUE(MemoryByStage({}).empty()); }

/// A rank that is idle at 10 MiB; its samples, each with the stage that was reached last.
RankEvidence Sampled(int64_t rank, std::vector<std::pair<std::string, uint64_t>> samples) {
  RankEvidence evidence{.rank = rank, .world_size = 2};
  evidence.memory = MemoryRecord{.idle_bytes = 10 * kMiB};
  for (const auto& [stage, mib] : samples)
    evidence.memory->samples.push_back({.anonymous_bytes = mib * kMiB, .stage = stage});
  return evidence;
}

TEST(LoadingMemoryTest, EndsWhenTheModelIsReady) {
  Evidence evidence;
  evidence.phases.push_back(
      {.phase = Phase::kMemory,
       .ranks = {Sampled(0, {{"start", 20}, {"built", 110}, {"built", 40}, {"ready", 500}}),
                 Sampled(1, {{"start", 9}, {"ready", 30}})}});
  std::vector<LoadingMemory> ranks = MemoryOfLoading(evidence);
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks[0].peak, 100 * kMiB);
  EXPECT_EQ(ranks[1].peak, 0u);
  EXPECT_FALSE(ranks[0].plain_peak);
  evidence.phases.push_back(
      {.phase = Phase::kMemoryPlain,
       .ranks = {Sampled(0, {{"start", 60}, {"ready", 70}}), Sampled(1, {{"start", 90}})}});
  ranks = MemoryOfLoading(evidence);
  EXPECT_EQ(ranks[0].plain_peak, 50 * kMiB);
  EXPECT_FALSE(ranks[1].plain_peak) << "it never was ready";
}

}  // namespace
}  // namespace shardproof
