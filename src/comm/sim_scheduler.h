// Threads of which one runs at a time, and events that happen between their turns, in an order that
// follows from a seed alone. Knows nothing of what the threads do.
#pragma once

#include <semaphore.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace shardproof {

/// A stream of numbers that is the same everywhere (splitmix64).
class SimRandom {
 public:
  explicit SimRandom(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  uint64_t Below(uint64_t bound) { return Next() % bound; }  ///< bound > 0

 private:
  uint64_t state_;
};

/// What one thread waits for and another gives. The standard library's semaphore looks again for a
/// while before it sleeps, which here takes the time of the one that is waited for.
class Turn {
 public:
  Turn() { sem_init(&given_, 0, 0); }
  ~Turn() { sem_destroy(&given_); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  void Give() { sem_post(&given_); }
  void Await();

 private:
  sem_t given_;
};

class SimScheduler {
 public:
  SimScheduler(int64_t ranks, uint64_t seed);

  /// Calls be_rank(rank) for every rank in a thread of its own, which must not throw, and returns
  /// when all have returned. \param stuck  called when ranks are left and none can go on; must wake
  /// one.
  void Run(const std::function<void(int64_t rank)>& be_rank, std::function<void()> stuck);

  // All below: only of the rank whose turn it is, or in an event.

  /// Lets others have their turn, and events happen.
  void Yield();
  /// Gives up the turn until the rank is woken.
  void Block();
  void Wake(int64_t rank);
  /// Something that may happen from now on, once.
  void Offer(std::function<void()> event) { events_.push_back(std::move(event)); }
  /// What was offered and has not happened never will.
  void DropEvents() { events_.clear(); }

  int64_t current() const { return current_; }
  bool IsDone(int64_t rank) const { return states_[rank] == State::kDone; }
  uint64_t steps() const { return steps_; }  ///< choices made: the time of this world

 private:
  enum class State { kRunnable, kBlocked, kDone };
  /// How eagerly events happen: a mistake may show only if they are all early, or all late.
  enum class Leaning { kNone, kEventsFirst, kEventsLast };

  void SetState(int64_t rank, State state);
  /// Lets events happen until it is a rank's turn; -1 once all ranks are done.
  int64_t ChooseRank();
  bool IsEventsTurn();
  void HappenOne();
  /// Passes the turn on; returns when it is this rank's again, or at once if it is done.
  void PassOn(int64_t rank);

  SimRandom random_;
  Leaning leaning_;
  std::vector<State> states_;
  std::vector<int64_t> runnable_;  // in no order that means anything
  std::vector<size_t> place_;      // of a runnable rank in runnable_
  std::vector<Turn> turns_;        // by rank
  Turn all_done_;
  std::vector<std::function<void()>> events_;
  std::function<void()> stuck_;
  int64_t current_ = -1;
  uint64_t steps_ = 0;
};

}  // namespace shardproof
