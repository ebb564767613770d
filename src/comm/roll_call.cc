#include "src/comm/roll_call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "src/comm/describe.h"
#include "src/comm/process_state.h"
#include "src/core/torch_try.h"
#include "src/seam/decorators.h"

namespace shardproof {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(10);

/// What a rank says of itself when it can go on no more.
struct Word {
  int64_t number = 0;  ///< of its last collective, from 1; 0: it made none
  std::string what;    ///< that is, empty: it has left
};

std::string ToText(const Word& word) { return fmt::format("{} {}", word.number, word.what); }

Word FromText(const std::string& text) {
  const size_t space = text.find(' ');
  return {std::strtoll(text.c_str(), nullptr, 10),
          space == std::string::npos ? "" : text.substr(space + 1)};
}

/// The ranks of one world, as one of them finds them by the store.
class Roll {
 public:
  Roll(c10::intrusive_ptr<c10d::Store> store, int64_t rank, int64_t world_size)
      : store_(std::move(store)), rank_(rank), world_size_(world_size) {
    Leave("process", NameOfThisProcess());
  }

  void LeaveWord(const Word& own) {
    if (std::exchange(has_left_word_, true)) return;
    Leave("word", ToText(own));
  }

  /// Why this rank's collective failed, as far as it concerns other ranks: "rank 2 (its process
  /// 4711 is gone)". Until one is known to be lost, waits for the words of ranks that may still
  /// come, `patience` at most: those that wait for this one come only when it is gone.
  std::string WhoIsLost(const Word& own, std::chrono::milliseconds patience, Clock& clock) {
    LeaveWord(own);
    const auto give_up = clock.Now() + patience;
    while (Look() && Lost().empty() && clock.Now() < give_up) std::this_thread::sleep_for(kPoll);
    if (const std::string lost = Lost(); !lost.empty()) return lost;
    const std::string unheard = Unheard();
    return unheard.empty() ? Odd(own) : unheard;
  }

 private:
  std::string KeyOf(int64_t rank, const char* what) const {
    return fmt::format("roll_call/{}/{}", rank, what);
  }
  void Leave(const char* what, const std::string& text) {
    // Who cannot reach the store any more has no other way to tell.
    (void)TorchTry(ErrorCode::kPeer, "the store", [&] {
      store_->set(KeyOf(rank_, what), text);
      return Unit{};
    });
  }
  std::optional<std::string> Find(int64_t rank, const char* what) {
    const auto found = TorchTry(ErrorCode::kPeer, "the store", [&] {
      const std::string key = KeyOf(rank, what);
      return store_->check({key}) ? std::optional(store_->get_to_str(key)) : std::nullopt;
    });
    return found.ok() ? found.value() : std::nullopt;
  }

  /// Looks at all ranks that have left no word. \returns whether one of them may still.
  bool Look() {
    bool may_come = false;
    for (int64_t rank = 0; rank < world_size_; ++rank) {
      if (rank == rank_ || words_.contains(rank)) continue;
      // In this order: who leaves word and ends is not gone without one.
      const auto process = Find(rank, "process");
      const ProcessState state = process ? StateOfProcess(*process) : ProcessState::kUnknown;
      if (const auto word = Find(rank, "word")) {
        words_[rank] = FromText(*word);
        continue;
      }
      silent_[rank] = {state, process ? PidOf(*process) : ""};
      may_come = may_come || (state != ProcessState::kGone && state != ProcessState::kStopped);
    }
    return may_come;
  }

  /// Ranks that are known to take no part any more.
  std::string Lost() const {
    std::vector<std::string> lost;
    for (int64_t rank = 0; rank < world_size_; ++rank) {
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
  std::string Unheard() const {
    std::vector<std::string> unheard;
    for (int64_t rank = 0; rank < world_size_; ++rank) {
      if (rank == rank_ || words_.contains(rank)) continue;
      unheard.push_back(fmt::format("rank {} (it does not answer)", rank));
    }
    return fmt::format("{}", fmt::join(unheard, " and "));
  }

  /// All ranks are there: those whose collective is not that of most.
  std::string Odd(const Word& own) const {
    std::map<std::string, std::vector<int64_t>> by_collective = {{ToText(own), {rank_}}};
    for (const auto& [rank, word] : words_) by_collective[ToText(word)].push_back(rank);
    if (by_collective.size() < 2) return "";
    size_t most = 0;
    for (const auto& [collective, ranks] : by_collective) most = std::max(most, ranks.size());
    std::vector<std::string> odd;
    for (const auto& [collective, ranks] : by_collective) {
      const bool is_own = collective == ToText(own);
      // Where none is that of most, whatever is not this rank's.
      if (ranks.size() == most ? most * 2 > static_cast<size_t>(world_size_) || is_own : false) {
        continue;
      }
      const Word word = FromText(collective);
      for (const int64_t rank : ranks) {
        odd.push_back(fmt::format("{} (it is at its collective {}, {})",
                                  rank == rank_ ? "this rank" : fmt::format("rank {}", rank),
                                  word.number, word.what));
      }
    }
    return fmt::format("{}", fmt::join(odd, " and "));
  }

  c10::intrusive_ptr<c10d::Store> store_;
  const int64_t rank_;
  const int64_t world_size_;
  bool has_left_word_ = false;
  std::map<int64_t, Word> words_;
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
  ~RollCaller() override { roll_.LeaveWord({made_, ""}); }

  Result<std::unique_ptr<Pending>> Broadcast(at::Tensor payload, int64_t root,
                                             std::vector<Piece> pieces) override {
    const Word word = Begin(BroadcastText(root, pieces));
    return Begun(word, failure_ ? Failure()
                                : inner_->Broadcast(std::move(payload), root, std::move(pieces)));
  }
  Result<std::unique_ptr<Pending>> Scatter(at::Tensor payload, std::vector<at::Tensor> payloads,
                                           int64_t root,
                                           std::vector<std::string> tensors) override {
    const Word word = Begin(ScatterText(root, tensors));
    return Begun(word, failure_ ? Failure()
                                : inner_->Scatter(std::move(payload), std::move(payloads), root,
                                                  std::move(tensors)));
  }
  Result<int64_t> Max(int64_t value, const std::string& what) override {
    const Word word = Begin(what);
    if (failure_) return *failure_;
    return Ended(word, inner_->Max(value, what));
  }
  Result<std::vector<int64_t>> Sum(std::vector<int64_t> values, const std::string& what) override {
    const Word word = Begin(what);
    if (failure_) return *failure_;
    return Ended(word, inner_->Sum(std::move(values), what));
  }

 private:
  class Called : public Pending {
   public:
    Called(std::unique_ptr<Pending> inner, Word word, RollCaller& caller)
        : inner_(std::move(inner)), word_(std::move(word)), caller_(caller) {}
    Result<at::Tensor> Wait() override {
      if (caller_.failure_) return *caller_.failure_;
      return caller_.Ended(word_, inner_->Wait());
    }

   private:
    std::unique_ptr<Pending> inner_;
    Word word_;
    RollCaller& caller_;
  };

  Word Begin(const std::string& what) { return {++made_, what}; }
  Result<std::unique_ptr<Pending>> Failure() const { return *failure_; }

  Result<std::unique_ptr<Pending>> Begun(const Word& word, Result<std::unique_ptr<Pending>> begun) {
    SP_ASSIGN(auto pending, Ended(word, std::move(begun)));
    return std::unique_ptr<Pending>(std::make_unique<Called>(std::move(pending), word, *this));
  }

  /// What the collective gave, or why no other will give anything.
  template <typename T>
  Result<T> Ended(const Word& word, Result<T> result) {
    if (result.ok() || result.error().code != ErrorCode::kPeer) return result;
    if (!failure_) {
      const std::string lost = roll_.WhoIsLost(word, patience_, *clock_);
      failure_ = PeerFailed(lost.empty() ? result.error().message + "; all ranks answer"
                                         : "lost " + lost + ": " + result.error().message);
    }
    return *failure_;
  }

  Roll roll_;
  const std::chrono::milliseconds patience_;
  const std::shared_ptr<Clock> clock_;
  int64_t made_ = 0;
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
