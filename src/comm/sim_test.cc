#include "src/comm/sim.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace shardproof {
namespace {

using testing::AllOf;
using testing::HasSubstr;

at::Tensor Bytes(int64_t size, int value) { return at::full({size}, value, at::kByte); }

/// What each rank's part came to: "" or what its first error said.
struct Outcome {
  std::vector<std::string> errors;
  std::string failure;
  std::vector<std::string> other_tensors;
};

/// Runs `part` on every rank with its communicator.
Outcome RunWorld(int64_t ranks, uint64_t seed,
                 const std::function<Status(int64_t rank, Communicator&, SimWorld&)>& part) {
  SimWorld world(ranks, seed);
  Outcome outcome;
  outcome.errors.resize(static_cast<size_t>(ranks));
  world.Run([&](int64_t rank) {
    at::set_num_threads(1);
    const auto communicator = world.CommunicatorOf(rank);
    const Status status = part(rank, *communicator, world);
    if (!status.ok()) outcome.errors[static_cast<size_t>(rank)] = status.error().message;
  });
  outcome.failure = world.failure();
  outcome.other_tensors = world.other_tensors();
  return outcome;
}

Status BroadcastAndWait(Communicator& communicator, at::Tensor payload, int64_t root,
                        const std::string& tensor) {
  const auto bytes = static_cast<uint64_t>(payload.numel());
  SP_ASSIGN(const auto pending, communicator.Broadcast(payload, root, {{tensor, 0, bytes, 0}}));
  SP_TRY(pending->Wait());
  return Ok();
}

TEST(SimWorld, CarriesBroadcastScatterAndMax) {
  const Outcome outcome = RunWorld(3, 1, [](int64_t rank, Communicator& at, SimWorld&) -> Status {
    const at::Tensor payload = Bytes(4, rank == 1 ? 7 : 0);
    SP_TRY(BroadcastAndWait(at, payload, 1, "w"));
    EXPECT_TRUE(payload.equal(Bytes(4, 7)));

    const at::Tensor own = Bytes(2, 0);
    std::vector<at::Tensor> payloads;
    for (int64_t to = 0; rank == 2 && to < 3; ++to) payloads.push_back(Bytes(2, 10 + to));
    SP_ASSIGN(const auto pending, at.Scatter(own, payloads, 2, {"w"}));
    SP_TRY(pending->Wait());
    EXPECT_TRUE(own.equal(Bytes(2, 10 + static_cast<int>(rank))));

    SP_ASSIGN(const int64_t most, at.Max(100 - rank, "vote"));
    EXPECT_EQ(most, 100);
    return Ok();
  });
  EXPECT_THAT(outcome.errors, testing::Each(""));
  EXPECT_EQ(outcome.failure, "");
}

/// The order in which ranks come by, with a few collectives between.
std::string Trace(uint64_t seed) {
  std::string trace;
  RunWorld(4, seed, [&](int64_t rank, Communicator& at, SimWorld& world) -> Status {
    for (int round = 0; round < 5; ++round) {
      trace += static_cast<char>('0' + rank);
      world.Yield();
      SP_TRY(at.Max(rank, "round"));
    }
    return Ok();
  });
  return trace;
}

TEST(SimWorld, TakesTheSameOrderForTheSameSeedOnly) {
  EXPECT_EQ(Trace(3), Trace(3));
  std::set<std::string> orders;
  for (uint64_t seed = 0; seed < 20; ++seed) orders.insert(Trace(seed));
  EXPECT_GT(orders.size(), 15u);
}

constexpr int kRounds = 32;

/// How many broadcasts have come to a rank before it waits for them, when both have posted them.
int CountEarly(uint64_t seed) {
  int early = 0, posted = 0;
  RunWorld(2, seed, [&](int64_t rank, Communicator& at, SimWorld& world) -> Status {
    for (int round = 0; round < kRounds; ++round) {
      const at::Tensor payload = Bytes(1, rank == 0 ? 1 : 0);
      SP_ASSIGN(const auto pending, at.Broadcast(payload, 0, {{"w", 0, 1, 0}}));
      if (rank == 0) posted = round + 1;
      // Not for ever: where nothing comes while a rank can go on, the other waits for this one.
      for (int turn = 0; turn < 50 && posted <= round; ++turn) world.Yield();
      if (rank == 1) early += payload.equal(Bytes(1, 1)) ? 1 : 0;
      SP_TRY(pending->Wait());
    }
    return Ok();
  });
  return early;
}

TEST(SimWorld, CarriesAtOnceInSomeWorldsAndAsLateAsItCanInOthers) {
  std::set<int> early;
  for (uint64_t seed = 0; seed < 20; ++seed) early.insert(CountEarly(seed));
  EXPECT_TRUE(early.contains(0));
  EXPECT_TRUE(early.contains(kRounds));
  EXPECT_GT(early.size(), 4u);
}

TEST(SimWorld, NamesWhatEveryRankWaitsForInADeadlock) {
  const Outcome outcome = RunWorld(3, 5, [](int64_t rank, Communicator& at, SimWorld&) -> Status {
    SP_TRY(at.Max(rank, "start"));
    if (rank == 2) return Ok();
    return BroadcastAndWait(at, Bytes(8, 1), 2, "model.norm.weight");
  });
  EXPECT_EQ(outcome.errors[2], "");
  for (const int64_t rank : {0, 1}) {
    EXPECT_THAT(
        outcome.errors[rank],
        AllOf(HasSubstr("deadlock: rank 2 has ended (after 1 operations); ranks 0, 1 wait in "
                        "broadcast 1 from rank 2 of 8 U8 (model.norm.weight), to which 2 of 3 "
                        "ranks have come")));
  }
}

TEST(SimWorld, FailsEveryOperationAfterADeadlock) {
  RunWorld(2, 5, [](int64_t rank, Communicator& at, SimWorld&) -> Status {
    if (rank == 1) return Ok();
    EXPECT_FALSE(at.Max(1, "first").ok());
    EXPECT_FALSE(at.Max(1, "second").ok());
    return Ok();
  });
}

/// What rank 0 hears when rank 1 asks for another collective than it.
std::string Mismatch(const std::function<Status(Communicator&)>& other) {
  const Outcome outcome = RunWorld(2, 1, [&](int64_t rank, Communicator& at, SimWorld&) -> Status {
    return rank == 1 ? other(at) : BroadcastAndWait(at, Bytes(4, 1), 0, "w");
  });
  EXPECT_NE(outcome.errors[0], "");
  EXPECT_NE(outcome.errors[1], "");
  return outcome.failure;
}

TEST(SimWorld, TellsInWhatCollectivesDiffer) {
  EXPECT_THAT(Mismatch([](Communicator& at) -> Status {
                SP_TRY(at.Max(1, "vote"));
                return Ok();
              }),
              AllOf(HasSubstr("differ in order"),
                    HasSubstr("broadcast 0 from rank 0 of 4 U8 (w) on rank 0"),
                    HasSubstr("allreduce 0 MAX of 1 I64 (vote) on rank 1")));
  EXPECT_THAT(Mismatch([](Communicator& at) -> Status {
                SP_ASSIGN(const auto pending, at.Scatter(Bytes(4, 1), {}, 0, {"w"}));
                SP_TRY(pending->Wait());
                return Ok();
              }),
              HasSubstr("differ in order"));
  const Outcome reductions =
      RunWorld(2, 1, [](int64_t rank, Communicator& at, SimWorld&) -> Status {
        if (rank == 0) {
          SP_TRY(at.Max(1, "vote"));
        } else {
          SP_TRY(at.Sum({1}, "vote"));
        }
        return Ok();
      });
  EXPECT_THAT(reductions.failure, AllOf(HasSubstr("differ in order"), HasSubstr("SUM of 1")));
  EXPECT_THAT(Mismatch([](Communicator& at) { return BroadcastAndWait(at, Bytes(5, 1), 0, "w"); }),
              HasSubstr("differ in shape"));
  EXPECT_THAT(Mismatch([](Communicator& at) { return BroadcastAndWait(at, Bytes(4, 1), 1, "w"); }),
              HasSubstr("differ in root"));
  EXPECT_THAT(Mismatch([](Communicator& at) {
                return BroadcastAndWait(at, at::full({4}, 1, at::kFloat), 0, "w");
              }),
              HasSubstr("differ in dtype"));
}

TEST(SimWorld, CarriesNothingToARankThatHasSeenTheFailure) {
  int unwritten = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const at::Tensor payload = Bytes(4, 0);
    at::Tensor when_told;
    const Outcome outcome =
        RunWorld(3, seed, [&](int64_t rank, Communicator& at, SimWorld&) -> Status {
          if (rank == 2) return BroadcastAndWait(at, Bytes(5, 1), 0, "w");  // of another shape
          const Status status = BroadcastAndWait(at, rank == 1 ? payload : Bytes(4, 9), 0, "w");
          if (rank == 1) when_told = payload.clone();
          return status;
        });
    EXPECT_THAT(outcome.failure, HasSubstr("differ in shape"));
    EXPECT_TRUE(payload.equal(when_told)) << "seed " << seed;
    unwritten += payload.equal(Bytes(4, 0)) ? 1 : 0;
  }
  EXPECT_GT(unwritten, 0);
}

TEST(SimWorld, CarriesOtherTensorsOfOneSizeAndSaysSo) {
  const Outcome outcome = RunWorld(2, 1, [](int64_t rank, Communicator& at, SimWorld&) {
    return BroadcastAndWait(at, Bytes(4, 1), 0, rank == 0 ? "a" : "b");
  });
  EXPECT_THAT(outcome.errors, testing::Each(""));
  ASSERT_EQ(outcome.other_tensors.size(), 1u);
  EXPECT_THAT(outcome.other_tensors[0],
              AllOf(HasSubstr("differ in tensors"), HasSubstr("(a)"), HasSubstr("(b)")));
}

TEST(SimWorld, ShowsWhatIsReadBeforeItHasCome) {
  int early = 0;
  int late = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    RunWorld(2, seed, [&](int64_t rank, Communicator& at, SimWorld&) -> Status {
      const at::Tensor payload = Bytes(4, rank == 0 ? 9 : 0xff);
      SP_ASSIGN(const auto pending, at.Broadcast(payload, 0, {{"w", 0, 4, 0}}));
      if (rank == 1) ++(payload.equal(Bytes(4, 9)) ? early : late);
      SP_TRY(pending->Wait());
      return Ok();
    });
  }
  EXPECT_GT(early, 0);
  EXPECT_GT(late, 0);
}

TEST(SimWorld, ShowsABufferThatIsReusedBeforeItHasGone) {
  int spoilt = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    RunWorld(2, seed, [&](int64_t rank, Communicator& at, SimWorld&) -> Status {
      const at::Tensor payload = Bytes(4, rank == 0 ? 9 : 0);
      SP_ASSIGN(const auto pending, at.Broadcast(payload, 0, {{"w", 0, 4, 0}}));
      if (rank == 0) payload.fill_(1);
      SP_TRY(pending->Wait());
      spoilt += rank == 1 && !payload.equal(Bytes(4, 9)) ? 1 : 0;
      return Ok();
    });
  }
  EXPECT_GT(spoilt, 0);
  EXPECT_LT(spoilt, 30);
}

TEST(SimWorld, RunsAThousandRanksWithoutData) {
  const Outcome outcome = RunWorld(1000, 2, [](int64_t, Communicator& at, SimWorld&) -> Status {
    const at::Tensor payload =
        at::empty({1 << 20}, at::TensorOptions().dtype(at::kByte).device(at::kMeta));
    for (int i = 0; i < 3; ++i) SP_TRY(BroadcastAndWait(at, payload, i, "w"));
    return Ok();
  });
  EXPECT_THAT(outcome.errors, testing::Each(""));
}

}  // namespace
}  // namespace shardproof
