#include "src/comm/roll_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "src/comm/peer_reports.h"
#include "src/comm/process_state.h"

namespace shardproof {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

/// A transport of which every collective fails, or works for this rank alone.
class Transport : public Communicator {
 public:
  Transport(int64_t rank, int64_t world_size) : rank_(rank), world_size_(world_size) {}
  int64_t rank() const override { return rank_; }
  int64_t world_size() const override { return world_size_; }
  Result<std::unique_ptr<Pending>> Broadcast(at::Tensor, int64_t, std::vector<Piece>) override {
    return Answer<std::unique_ptr<Pending>>(nullptr);
  }
  Result<std::unique_ptr<Pending>> Scatter(at::Tensor, std::vector<at::Tensor>, int64_t,
                                           std::vector<std::string>) override {
    return Answer<std::unique_ptr<Pending>>(nullptr);
  }
  Result<int64_t> Max(int64_t value, const std::string&) override { return Answer(value); }
  Result<std::vector<int64_t>> Sum(std::vector<int64_t> values, const std::string&) override {
    return Answer(values);
  }

  bool works = false;
  int calls = 0;

 private:
  template <typename T>
  Result<T> Answer(T value) {
    ++calls;
    if (works) return value;
    return PeerFailed("agreeing: Connection closed by peer");
  }
  int64_t rank_;
  int64_t world_size_;
};

class RollCallTest : public ::testing::Test {
 protected:
  struct Rank {
    std::shared_ptr<Transport> transport;
    std::shared_ptr<Communicator> communicator;
  };
  Rank Make(int64_t rank, int64_t world_size, milliseconds patience = milliseconds(200)) {
    auto transport = std::make_shared<Transport>(rank, world_size);
    return {transport, CallRoll(transport, store_, patience, MakeSteadyClock())};
  }
  /// What the collectives of ranks, named so, end with at the same time.
  std::vector<std::string> FailTogether(const std::vector<std::pair<Rank*, std::string>>& ranks) {
    std::vector<std::string> messages(ranks.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < ranks.size(); ++i) {
      threads.emplace_back([&, i] {
        const auto result = ranks[i].first->communicator->Max(0, ranks[i].second);
        EXPECT_FALSE(result.ok());
        if (!result.ok()) messages[i] = result.error().message;
      });
    }
    for (std::thread& thread : threads) thread.join();
    return messages;
  }

  c10::intrusive_ptr<c10d::Store> store_ = c10::make_intrusive<c10d::HashStore>();
};

TEST_F(RollCallTest, NamesWhoHasLeft) {
  Rank first = Make(0, 3), second = Make(1, 3);
  {
    Rank third = Make(2, 3);
    third.transport->works = true;
    EXPECT_TRUE(third.communicator->Max(0, "agreeing").ok());
  }
  for (const std::string& message : FailTogether({{&first, "agreeing"}, {&second, "agreeing"}})) {
    EXPECT_EQ(message,
              "lost rank 2 (it has left after 1 collectives): agreeing: Connection closed by peer");
  }
}

TEST_F(RollCallTest, NamesWhoDoesNotAnswer) {
  Rank first = Make(0, 3), second = Make(1, 3);
  const auto begin = std::chrono::steady_clock::now();
  const auto messages = FailTogether({{&first, "agreeing"}, {&second, "agreeing"}});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  for (const std::string& message : messages) {
    EXPECT_THAT(message, HasSubstr("lost rank 2 (it does not answer): agreeing: "));
  }
}

TEST_F(RollCallTest, WhoComesTooLateIsToldWhoHasWaited) {
  Rank first = Make(0, 3), second = Make(1, 3), third = Make(2, 3);
  FailTogether({{&first, "agreeing"}, {&second, "agreeing"}});
  EXPECT_EQ(
      FailTogether({{&third, "agreeing"}}).front(),
      "lost this rank (ranks 0, 1 have waited for it in vain): agreeing: Connection closed by "
      "peer");
}

TEST_F(RollCallTest, NamesWhoIsAtAnotherCollective) {
  Rank first = Make(0, 3), second = Make(1, 3), third = Make(2, 3);
  third.transport->works = true;
  EXPECT_TRUE(third.communicator->Max(0, "loading").ok());
  third.transport->works = false;
  const auto messages =
      FailTogether({{&first, "loading"}, {&second, "loading"}, {&third, "sharding"}});
  EXPECT_THAT(messages[0], HasSubstr("lost rank 2 (it is at its collective 2, sharding): "));
  EXPECT_THAT(messages[1], HasSubstr("lost rank 2 (it is at its collective 2, sharding): "));
  EXPECT_THAT(messages[2], HasSubstr("lost this rank (it is at its collective 2, sharding): "));
}

TEST_F(RollCallTest, OfTwoEachNamesTheOther) {
  Rank first = Make(0, 2), second = Make(1, 2);
  const auto messages = FailTogether({{&first, "loading"}, {&second, "sharding"}});
  EXPECT_THAT(messages[0], HasSubstr("lost rank 1 (it is at its collective 1, sharding): "));
  EXPECT_THAT(messages[1], HasSubstr("lost rank 0 (it is at its collective 1, loading): "));
}

TEST_F(RollCallTest, WhereAllAreThereAConnectionIsLost) {
  Rank first = Make(0, 2), second = Make(1, 2);
  for (const std::string& message : FailTogether({{&first, "loading"}, {&second, "loading"}})) {
    EXPECT_EQ(message, "agreeing: Connection closed by peer; all ranks answer");
  }
}

TEST_F(RollCallTest, NamesWhoCameToItLate) {
  /// Waits for a rank that does not come in time.
  class Waits : public Transport {
   public:
    using Transport::Transport;
    Result<int64_t> Max(int64_t value, const std::string& what) override {
      std::this_thread::sleep_for(milliseconds(2000));
      return Transport::Max(value, what);
    }
  };
  std::vector<std::string> messages(3);
  std::vector<std::thread> threads;
  for (const int64_t rank : {0, 1, 2}) {
    threads.emplace_back([&, rank] {
      const bool is_late = rank == 1;
      const auto transport =
          is_late ? std::make_shared<Transport>(rank, 3) : std::make_shared<Waits>(rank, 3);
      const auto own = CallRoll(transport, store_, milliseconds(900), MakeSteadyClock());
      while (is_late && !store_->check({"roll_call/0/word", "roll_call/2/word"})) {
        std::this_thread::sleep_for(milliseconds(10));
      }
      messages[rank] = own->Max(0, "loading").error().message;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(messages[0], ContainsRegex("lost rank 1 \\(it came [12].. s after "));
  EXPECT_THAT(messages[1], ContainsRegex("lost this rank \\(it came [12].. s after rank [02]"));
  EXPECT_THAT(messages[2], ContainsRegex("lost rank 1 \\(it came [12].. s after "));
}

TEST_F(RollCallTest, AfterAFailureEveryCollectiveFailsAtOnce) {
  Rank only = Make(0, 2);
  const auto first = only.communicator->Max(0, "loading");
  ASSERT_FALSE(first.ok());
  only.transport->works = true;
  const auto second = only.communicator->Sum({1}, "sharding");
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().message, first.error().message);
  EXPECT_FALSE(only.communicator->Broadcast({}, 0, {}).ok());
  EXPECT_FALSE(only.communicator->Scatter({}, {}, 0, {}).ok());
  EXPECT_EQ(only.transport->calls, 1);
}

TEST_F(RollCallTest, AnErrorOfThisRankAloneIsLeftAsItIs) {
  class Full : public Transport {
   public:
    using Transport::Transport;
    Result<int64_t> Max(int64_t, const std::string&) override { return Failed("no memory"); }
  };
  const auto communicator =
      CallRoll(std::make_shared<Full>(0, 2), store_, milliseconds(1), MakeSteadyClock());
  EXPECT_EQ(communicator->Max(0, "loading").error().message, "no memory");
}

/// A child that sleeps, with its name.
class Child {
 public:
  Child() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      const std::string name = NameOfThisProcess();
      (void)!::write(ends[1], name.data(), name.size());
      ::close(ends[1]);
      for (;;) ::pause();
    }
    ::close(ends[1]);
    std::array<char, 512> text{};
    for (ssize_t got = 0; (got = ::read(ends[0], text.data(), text.size())) > 0;) {
      name.append(text.data(), static_cast<size_t>(got));
    }
    ::close(ends[0]);
  }
  ~Child() { End(); }
  void Signal(int signal) const { ::kill(pid_, signal); }
  void Stop() const {
    Signal(SIGSTOP);
    ::waitpid(pid_, nullptr, WUNTRACED);
  }
  /// Killed, and not waited for: a zombie.
  void Kill() const {
    Signal(SIGKILL);
    siginfo_t info = {};
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }
  void End() {
    if (pid_ <= 0) return;
    Signal(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  std::string name;

 private:
  pid_t pid_ = -1;
};

TEST(ProcessStateTest, IsWhatBecameOfAProcess) {
  Child child;
  EXPECT_EQ(StateOfProcess(child.name), ProcessState::kRunning);
  child.Stop();
  EXPECT_EQ(StateOfProcess(child.name), ProcessState::kStopped);
  child.Kill();
  EXPECT_EQ(StateOfProcess(child.name), ProcessState::kGone);
  child.End();
  EXPECT_EQ(StateOfProcess(child.name), ProcessState::kGone);
  EXPECT_EQ(StateOfProcess(NameOfThisProcess()), ProcessState::kRunning);
  EXPECT_EQ(PidOf(NameOfThisProcess()), std::to_string(::getpid()));
}

TEST(ProcessStateTest, OfWhatIsNotHereNothingIsKnown) {
  const std::string own = NameOfThisProcess();
  EXPECT_EQ(StateOfProcess("another-" + own), ProcessState::kUnknown);
  EXPECT_EQ(StateOfProcess(""), ProcessState::kUnknown);
  EXPECT_EQ(StateOfProcess("a b"), ProcessState::kUnknown);
  // Another process has the PID by now.
  EXPECT_EQ(StateOfProcess(own + "0"), ProcessState::kGone);
}

TEST_F(RollCallTest, NamesAProcessThatIsGoneOrStoppedWithoutWaiting) {
  for (const bool stopped : {false, true}) {
    store_ = c10::make_intrusive<c10d::HashStore>();
    const auto hour = std::chrono::hours(1);
    Rank first = Make(0, 3, hour), second = Make(1, 3, hour);
    Child child;
    if (stopped)
      child.Stop();
    else
      child.Kill();
    store_->set("roll_call/2/process", child.name);
    for (const std::string& message : FailTogether({{&first, "x"}, {&second, "x"}})) {
      EXPECT_THAT(message, AllOf(HasSubstr("lost rank 2 (its process "), Not(HasSubstr("rank 1")),
                                 HasSubstr(stopped ? " is stopped): " : " is gone): ")));
    }
  }
}

/// A store in a file, in place of which there is a directory once it is gone.
class LostStoreTest : public RollCallTest {
 protected:
  LostStoreTest() {
    std::string folder = ::testing::TempDir() + "store-XXXXXX";
    EXPECT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    store_ = c10::make_intrusive<c10d::FileStore>(folder_ + "/store", 3);
  }
  ~LostStoreTest() override { std::filesystem::remove_all(folder_); }
  void Lose() const {
    std::filesystem::remove(folder_ + "/store");
    std::filesystem::create_directory(folder_ + "/store");
  }
  /// What rank 0 says when its second collective fails and the store is gone.
  std::string Fail(milliseconds patience) {
    Rank first = Make(0, 2, patience);
    first.transport->works = true;
    EXPECT_TRUE(first.communicator->Max(0, "x").ok());
    Lose();
    first.transport->works = false;
    return FailTogether({{&first, "x"}}).front();
  }
  std::string folder_;
};

TEST_F(LostStoreTest, WhoWasThereIsKnown) {
  Child child;
  store_->set("roll_call/1/process", child.name);
  child.Kill();
  EXPECT_THAT(Fail(std::chrono::hours(1)), HasSubstr("lost rank 1 (its process "));
}

TEST_F(LostStoreTest, WhoIsLostIsNotGuessed) {
  store_->set("roll_call/1/process", NameOfThisProcess());
  EXPECT_EQ(
      Fail(milliseconds(50)),
      "agreeing: Connection closed by peer; who is lost is not known: the store that ranks met "
      "by is gone");
}

TEST_F(RollCallTest, NamesWhoIsCutOff) {
  // Rank 2 answers too: it has noticed that it is alone.
  for (const int64_t rank : {1, 2}) {
    const Word word{1, "loading", rank == 1 ? std::vector<int64_t>{2} : std::vector<int64_t>{0, 1}};
    store_->set("roll_call/" + std::to_string(rank) + "/word", ToText(word));
  }
  Rank first = Make(0, 3, std::chrono::hours(1));
  EXPECT_THAT(FailTogether({{&first, "loading"}}).front(),
              HasSubstr("lost rank 2 (its connections with ranks 0, 1 are broken): "));
}

}  // namespace
}  // namespace shardproof
