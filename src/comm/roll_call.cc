#include "src/comm/roll_call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "src/aten/torch_try.h"
#include "src/comm/describe.h"
#include "src/comm/peer_reports.h"
#include "src/comm/process_state.h"
#include "src/comm/tcp_table.h"
#include "src/seam/decorators.h"

namespace shardproof {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(10);

std::vector<int64_t> RanksBut(int64_t own, int64_t world_size) {
  std::vector<int64_t> ranks;
  for (int64_t rank = 0; rank < world_size; ++rank) {
    if (rank != own) ranks.push_back(rank);
  }
  return ranks;
}

/// The ranks of one world, as one of them finds them by the store.
class Roll {
 public:
  Roll(c10::intrusive_ptr<c10d::Store> store, int64_t rank, int64_t world_size)
      : store_(std::move(store)),
        rank_(rank),
        others_(RanksBut(rank, world_size)),
        ends_(OwnTcpEnds()) {
    Leave("process", NameOfThisProcess());
    Leave("ends", fmt::format("{}", fmt::join(ends_, " ")));
  }

  /// Once all ranks are known to be there: notes who they are, since the store may not stay.
  void Meet() {
    for (const int64_t rank : others_) {
      processes_[rank] = Find(rank, "process").value_or("");
    }
  }

  bool store_is_gone() const { return store_is_gone_; }

  void LeaveWord(const Word& own) {
    if (std::exchange(has_left_word_, true)) return;
    Leave("word", ToText(own));
  }

  /// Why this rank's collective failed, as far as it concerns other ranks: "rank 2 (its process
  /// 4711 is gone)". Until one is known to be lost, waits for the words of ranks that may still
  /// come, `patience` at most: those that wait for this one come only when it is gone.
  std::string WhoIsLost(Word own, const std::string& error, std::chrono::milliseconds patience,
                        Clock& clock) {
    own.cut = CutOffFrom(error);
    own.order = NextOrder();
    LeaveWord(own);
    words_[rank_] = own;
    const auto give_up = clock.Now() + patience;
    while (Look() && Lost().empty() && !IsCutOffForCertain(words_) && clock.Now() < give_up) {
      std::this_thread::sleep_for(kPoll);
    }
    if (const std::string lost = Lost(); !lost.empty()) return lost;
    // Before connections, which those whose time is up have closed.
    if (const std::string late = WhoCameLate(words_, rank_, 2 * patience); !late.empty()) {
      return late;
    }
    if (IsCutOffForCertain(words_)) return WhoIsCutOff(words_, rank_);
    if (store_is_gone_) return "";
    if (const std::string unheard = Unheard(); !unheard.empty()) {
      // Who comes later learns from it why this rank is gone.
      own.missed = Missing();
      Leave("word", ToText(own));
      return unheard;
    }
    for (const auto& who : {WhoIsCutOff, WhoIsElsewhere, WhoWasMissed}) {
      if (const std::string lost = who(words_, rank_); !lost.empty()) return lost;
    }
    return "";
  }

 private:
  std::string KeyOf(int64_t rank, const char* what) const {
    return fmt::format("roll_call/{}/{}", rank, what);
  }
  /// What it gives to `ask`. Once that fails it is gone.
  template <typename Ask>
  auto OfStore(Ask ask) {
    auto given = TorchTry(ErrorCode::kPeer, "the store", ask);
    store_is_gone_ = store_is_gone_ || !given.ok();
    return given;
  }
  void Leave(const char* what, const std::string& text) {
    // Who cannot reach the store any more has no other way to tell.
    (void)OfStore([&] {
      store_->set(KeyOf(rank_, what), text);
      return Unit{};
    });
  }
  int64_t NextOrder() {
    const auto order = OfStore([&] { return store_->add("roll_call/order", 1); });
    return order.ok() ? order.value() : 0;
  }
  std::optional<std::string> Find(int64_t rank, const char* what) {
    if (store_is_gone_) return std::nullopt;
    const auto found = OfStore([&] {
      const std::string key = KeyOf(rank, what);
      return store_->check({key}) ? std::optional(store_->get_to_str(key)) : std::nullopt;
    });
    return found.ok() ? found.value() : std::nullopt;
  }

  /// Ranks with which this one's connection broke, by the error and by what the kernel still lists.
  std::vector<int64_t> CutOffFrom(const std::string& error) {
    std::set<TcpEnd> broken, alive;
    for (const TcpConnection& one : TcpConnectionsHere()) {
      if (!ends_.contains(one.local)) continue;
      if (one.is_established) alive.insert(one.remote);
      if (one.is_unanswered) broken.insert(one.remote);
    }
    // Where the time is up, or a peer has failed, a transport closes its connections itself.
    const bool was_reset =  // in libc's words
        error.find("reset by peer") != std::string::npos;
    if (was_reset) broken.insert(TcpEndIn(error));
    std::vector<int64_t> ranks;
    if (broken.empty()) return ranks;
    for (const int64_t rank : others_) {
      const auto ends = Find(rank, "ends").value_or("");
      const bool is_gone = was_reset && !ends.empty() && !AnyOf(ends, alive);
      if (is_gone || AnyOf(ends, broken)) ranks.push_back(rank);
    }
    return ranks;
  }
  static bool AnyOf(const std::string& ends, const std::set<TcpEnd>& wanted) {
    std::istringstream each(ends);
    for (TcpEnd end; each >> end;) {
      if (wanted.contains(end)) return true;
    }
    return false;
  }

  /// Looks at all ranks that have left no word. \returns whether one of them may still.
  bool Look() {
    bool may_come = false;
    for (const int64_t rank : others_) {
      if (words_.contains(rank)) continue;
      // In this order: who leaves word and ends is not gone without one.
      std::string& process = processes_[rank];
      if (process.empty()) process = Find(rank, "process").value_or("");
      const ProcessState state = StateOfProcess(process);
      if (const auto word = Find(rank, "word")) {
        words_[rank] = WordFromText(*word);
        continue;
      }
      silent_[rank] = {state, PidOf(process)};
      may_come = may_come || (state != ProcessState::kGone && state != ProcessState::kStopped);
    }
    return may_come;
  }

  /// Ranks that are known to take no part any more.
  std::string Lost() const {
    std::vector<std::string> lost;
    for (const int64_t rank : others_) {
      if (const auto word = words_.find(rank); word != words_.end()) {
        if (!word->second.what.empty()) continue;
        lost.push_back(
            fmt::format("rank {} (it has left after {} collectives)", rank, word->second.number));
      } else if (const auto silent = silent_.find(rank); silent != silent_.end()) {
        const auto& [state, pid] = silent->second;
        if (state == ProcessState::kGone) {
          lost.push_back(fmt::format("rank {} (its process {} is gone)", rank, pid));
        } else if (state == ProcessState::kStopped) {
          lost.push_back(fmt::format("rank {} (its process {} is stopped)", rank, pid));
        }
      }
    }
    return fmt::format("{}", fmt::join(lost, " and "));
  }

  /// Ranks that have left no word, although their time is up.
  std::vector<int64_t> Missing() const {
    std::vector<int64_t> missing;
    for (const int64_t rank : others_) {
      if (!words_.contains(rank)) missing.push_back(rank);
    }
    return missing;
  }
  std::string Unheard() const {
    std::vector<std::string> unheard;
    for (const int64_t rank : Missing()) {
      unheard.push_back(fmt::format("rank {} (it does not answer)", rank));
    }
    return fmt::format("{}", fmt::join(unheard, " and "));
  }

  c10::intrusive_ptr<c10d::Store> store_;
  const int64_t rank_;
  const std::vector<int64_t> others_;
  bool has_left_word_ = false;
  const std::set<TcpEnd> ends_;  ///< of this rank's connections, which are made
  bool store_is_gone_ = false;
  std::map<int64_t, std::string> processes_;  ///< their names, empty while they are not known
  Words words_;
  std::map<int64_t, std::pair<ProcessState, std::string>> silent_;  ///< and their PIDs
};

class RollCaller : public CommunicatorDecorator {
 public:
  RollCaller(std::shared_ptr<Communicator> inner, c10::intrusive_ptr<c10d::Store> store,
             std::chrono::milliseconds patience, std::shared_ptr<Clock> clock)
      : CommunicatorDecorator(std::move(inner)),
        roll_(std::move(store), rank(), world_size()),
        patience_(patience),
        clock_(std::move(clock)) {}
  ~RollCaller() override { roll_.LeaveWord({count_, ""}); }

  Result<std::unique_ptr<Pending>> Broadcast(at::Tensor payload, int64_t root,
                                             std::vector<Piece> pieces) override {
    const Made made = Begin(BroadcastText(root, pieces));
    return Begun(made, failure_ ? Failure()
                                : inner_->Broadcast(std::move(payload), root, std::move(pieces)));
  }
  Result<std::unique_ptr<Pending>> Scatter(at::Tensor payload, std::vector<at::Tensor> payloads,
                                           int64_t root,
                                           std::vector<std::string> tensors) override {
    const Made made = Begin(ScatterText(root, tensors));
    return Begun(made, failure_ ? Failure()
                                : inner_->Scatter(std::move(payload), std::move(payloads), root,
                                                  std::move(tensors)));
  }
  Result<int64_t> Max(int64_t value, const std::string& what) override {
    const Made made = Begin(what);
    if (failure_) return *failure_;
    return Ended(made, inner_->Max(value, what));
  }
  Result<std::vector<int64_t>> Sum(std::vector<int64_t> values, const std::string& what) override {
    const Made made = Begin(what);
    if (failure_) return *failure_;
    return Ended(made, inner_->Sum(std::move(values), what));
  }

 private:
  /// A collective that has begun.
  struct Made {
    int64_t number = 0;  ///< from 1
    std::string what;
    std::chrono::steady_clock::time_point begin;
  };

  class Called : public Pending {
   public:
    Called(std::unique_ptr<Pending> inner, Made made, RollCaller& caller)
        : inner_(std::move(inner)), made_(std::move(made)), caller_(caller) {}
    Result<at::Tensor> Wait() override {
      if (caller_.failure_) return *caller_.failure_;
      return caller_.Ended(made_, inner_->Wait());
    }

   private:
    std::unique_ptr<Pending> inner_;
    Made made_;
    RollCaller& caller_;
  };

  Made Begin(const std::string& what) { return {++count_, what, clock_->Now()}; }
  Result<std::unique_ptr<Pending>> Failure() const { return *failure_; }

  Result<std::unique_ptr<Pending>> Begun(const Made& made, Result<std::unique_ptr<Pending>> begun) {
    if (!begun.ok()) return Ended(made, std::move(begun));
    return std::unique_ptr<Pending>(
        std::make_unique<Called>(std::move(begun).value(), made, *this));
  }

  /// What the collective gave, or why no other will give anything.
  template <typename T>
  Result<T> Ended(const Made& made, Result<T> result) {
    if (result.ok() && !std::exchange(has_met_, true)) roll_.Meet();
    if (result.ok() || result.error().code != ErrorCode::kPeer) return result;
    if (!failure_) {
      const Word word{.number = made.number,
                      .what = made.what,
                      .waited = std::chrono::duration_cast<std::chrono::milliseconds>(
                          clock_->Now() - made.begin)};
      const std::string lost = roll_.WhoIsLost(word, result.error().message, patience_, *clock_);
      const char* const why =
          roll_.store_is_gone() ? "; who is lost is not known: the store that ranks met by is gone"
                                : "; all ranks answer";
      failure_ = PeerFailed(lost.empty() ? result.error().message + why
                                         : "lost " + lost + ": " + result.error().message);
    }
    return *failure_;
  }

  Roll roll_;
  const std::chrono::milliseconds patience_;
  const std::shared_ptr<Clock> clock_;
  int64_t count_ = 0;
  bool has_met_ = false;
  std::optional<Error> failure_;
};

}  // namespace

std::shared_ptr<Communicator> CallRoll(std::shared_ptr<Communicator> inner,
                                       c10::intrusive_ptr<c10d::Store> store,
                                       std::chrono::milliseconds patience,
                                       std::shared_ptr<Clock> clock) {
  if (inner->world_size() == 1) return inner;
  return std::make_shared<RollCaller>(std::move(inner), std::move(store), patience,
                                      std::move(clock));
}

}  // namespace shardproof
