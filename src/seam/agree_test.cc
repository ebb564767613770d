#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "src/seam/communicator.h"

namespace shardproof {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

/// Where ranks that are threads meet.
class Meeting {
 public:
  explicit Meeting(int64_t size) : values(size), payloads(size), size_(size) {}

  /// \error kInternal if the others do not come: they are in another collective, or gone.
  Status Wait() {
    std::unique_lock lock(mutex_);
    const int64_t round = round_;
    if (++waiting_ == size_) {
      waiting_ = 0;
      ++round_;
      all_here_.notify_all();
      return Ok();
    }
    if (all_here_.wait_for(lock, std::chrono::seconds(10), [&] { return round_ != round; })) {
      return Ok();
    }
    return Internal("the ranks are not in the same collective");
  }

  std::vector<int64_t> values;       // one writer each, read between two Waits
  std::vector<at::Tensor> payloads;  // likewise

 private:
  std::mutex mutex_;
  std::condition_variable all_here_;
  int64_t waiting_ = 0;
  int64_t round_ = 0;
  int64_t size_;
};

class Done : public Pending {
 public:
  Result<at::Tensor> Wait() override { return at::Tensor(); }
};

class ThreadRank : public Communicator {
 public:
  ThreadRank(int64_t rank, Meeting& meeting) : rank_(rank), meeting_(meeting) {}
  int64_t rank() const override { return rank_; }
  int64_t world_size() const override { return static_cast<int64_t>(meeting_.values.size()); }

  Result<std::unique_ptr<Pending>> Broadcast(at::Tensor payload, int64_t root,
                                             std::vector<Piece> pieces) override {
    collectives.push_back("broadcast of " + pieces.at(0).tensor);
    meeting_.payloads[rank_] = payload;
    SP_TRY(meeting_.Wait());
    const at::Tensor& sent = meeting_.payloads[root];
    if (sent.numel() != payload.numel()) return Internal("payloads of different sizes");
    if (rank_ != root) payload.copy_(sent);
    SP_TRY(meeting_.Wait());
    return std::unique_ptr<Pending>(std::make_unique<Done>());
  }

  Result<std::unique_ptr<Pending>> Scatter(at::Tensor, std::vector<at::Tensor>, int64_t,
                                           std::vector<std::string>) override {
    return Internal("nothing should be scattered");
  }

  Result<std::vector<int64_t>> Sum(std::vector<int64_t>, const std::string&) override {
    return Internal("nothing should be added up");
  }

  Result<int64_t> Max(int64_t value, const std::string& what) override {
    collectives.push_back("max of " + what);
    meeting_.values[rank_] = value;
    SP_TRY(meeting_.Wait());
    const int64_t most = *std::max_element(meeting_.values.begin(), meeting_.values.end());
    SP_TRY(meeting_.Wait());
    return most;
  }

  std::vector<std::string> collectives;

 private:
  int64_t rank_;
  Meeting& meeting_;
};

/// What `function(communicator)` gives on each of `world` ranks. All must have made the same
/// collectives.
template <typename Function>
auto OnRanks(int64_t world, Function&& function) {
  using Value = decltype(function(std::declval<ThreadRank&>()));
  Meeting meeting(world);
  std::vector<std::optional<Value>> results(world);
  std::vector<std::vector<std::string>> collectives(world);
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadRank communicator(rank, meeting);
      results[rank] = function(communicator);
      collectives[rank] = communicator.collectives;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& made : collectives) EXPECT_EQ(made, collectives[0]);
  std::vector<Value> values;
  for (auto& result : results) values.push_back(std::move(*result));
  return values;
}

/// Agree among ranks of which those with an error in `own` failed.
std::vector<Status> AgreeOn(const std::vector<Status>& own) {
  return OnRanks(static_cast<int64_t>(own.size()), [&](ThreadRank& communicator) {
    return Agree(communicator, own[communicator.rank()], "loading");
  });
}

TEST(Agree, IsOkOnlyIfAllAre) {
  for (const int64_t world : {1, 2, 5}) {
    for (const Status& status : AgreeOn(std::vector<Status>(world, Ok()))) {
      EXPECT_TRUE(status.ok());
    }
  }
}

TEST(Agree, EveryRankLearnsOfTheFailureOfAny) {
  constexpr int64_t kWorld = 4;
  for (int64_t failed = 0; failed < kWorld; ++failed) {
    std::vector<Status> own(kWorld, Ok());
    own[failed] = Failed("no memory for w");
    const auto agreed = AgreeOn(own);
    for (int64_t rank = 0; rank < kWorld; ++rank) {
      ASSERT_FALSE(agreed[rank].ok()) << rank;
      if (rank == failed) {
        EXPECT_EQ(agreed[rank].error().code, ErrorCode::kFailed);
        EXPECT_EQ(agreed[rank].error().message, "no memory for w");
      } else {
        EXPECT_EQ(agreed[rank].error().code, ErrorCode::kPeer);
        EXPECT_EQ(agreed[rank].error().message,
                  "loading: rank " + std::to_string(failed) + " failed: no memory for w");
      }
    }
  }
}

TEST(Agree, TheLowestFailedRankIsNamedAndEachKeepsItsOwnError) {
  const auto agreed = AgreeOn({Ok(), Internal("one"), Ok(), Failed("three"), Ok()});
  EXPECT_EQ(agreed[1].error().message, "one");
  EXPECT_EQ(agreed[1].error().code, ErrorCode::kInternal);
  EXPECT_EQ(agreed[3].error().message, "three");
  EXPECT_EQ(agreed[3].error().code, ErrorCode::kFailed);
  for (const int rank : {0, 2, 4}) {
    EXPECT_EQ(agreed[rank].error().code, ErrorCode::kPeer);
    EXPECT_THAT(agreed[rank].error().message, HasSubstr("rank 1 failed: one"));
  }
}

TEST(Agree, BadInputIsBadInputForEveryRank) {
  const auto agreed = AgreeOn({Ok(), BadInput("config.json: is not JSON"), Ok()});
  for (const Status& status : agreed) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kBadInput);
  }
  EXPECT_EQ(agreed[1].error().message, "config.json: is not JSON");
  // Who found it, is told: others may find something else.
  EXPECT_EQ(agreed[0].error().message, "rank 1: config.json: is not JSON");
}

TEST(Agree, AnErrorWithoutWordsIsAnErrorStill) {
  for (const Status& status : AgreeOn({Ok(), Failed("")})) EXPECT_FALSE(status.ok());
  for (const Status& status : AgreeOn({Ok(), BadInput("")})) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kBadInput);
  }
  // A message that begins like the mark of bad input is not taken for it.
  EXPECT_EQ(AgreeOn({Failed("!"), Ok()})[1].error().code, ErrorCode::kPeer);
}

TEST(ShareText, GivesEveryRankRootsText) {
  std::string bytes = "caf\xc3\xa9 with a NUL ";
  bytes += '\0';
  bytes += "\xff and a newline\n";
  for (const std::string& text :
       {std::string(), std::string("x"), bytes, std::string(100000, 'y')}) {
    for (int64_t root = 0; root < 3; ++root) {
      const auto shared = OnRanks(3, [&](ThreadRank& communicator) {
        // What the others bring must not matter, not even if it is longer.
        const bool is_root = communicator.rank() == root;
        return ShareText(communicator, is_root ? text : std::string(200000, 'z'), root, "text");
      });
      ASSERT_THAT(shared, SizeIs(3));
      for (const auto& received : shared) {
        ASSERT_TRUE(received.ok()) << received.error().message;
        EXPECT_TRUE(received.value() == text) << "root " << root;
      }
    }
  }
}

/// A transport whose n-th collective fails.
class Broken : public Communicator {
 public:
  explicit Broken(int left) : left_(left) {}
  int64_t rank() const override { return 0; }
  int64_t world_size() const override { return 2; }
  Result<std::unique_ptr<Pending>> Broadcast(at::Tensor, int64_t, std::vector<Piece>) override {
    if (left_-- == 0) return PeerFailed("broadcast lost");
    return std::unique_ptr<Pending>(std::make_unique<Done>());
  }
  Result<std::unique_ptr<Pending>> Scatter(at::Tensor, std::vector<at::Tensor>, int64_t,
                                           std::vector<std::string>) override {
    return Internal("nothing should be scattered");
  }
  Result<std::vector<int64_t>> Sum(std::vector<int64_t>, const std::string&) override {
    return PeerFailed("connection closed");
  }
  Result<int64_t> Max(int64_t value, const std::string&) override {
    if (left_-- == 0) return PeerFailed("allreduce lost");
    return value;
  }

 private:
  int left_;
};

TEST(Agree, ALostPeerIsAnErrorWhereverItIsLost) {
  Broken first(0);
  EXPECT_EQ(Agree(first, Ok(), "saving").error().code, ErrorCode::kPeer);
  for (int n = 0; n < 3; ++n) {
    Broken broken(n);
    const Status agreed = Agree(broken, Failed("disk full"), "saving");
    ASSERT_FALSE(agreed.ok());
    EXPECT_THAT(agreed.error().message, HasSubstr(n == 2 ? "broadcast lost" : "allreduce lost"));
  }
}

}  // namespace
}  // namespace shardproof
