#include "src/comm/sim_scheduler.h"

#include <cerrno>
#include <thread>
#include <utility>

#include "src/core/check.h"

namespace shardproof {

uint64_t SimRandom::Next() {
  uint64_t z = (state_ += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

void Turn::Await() {
  while (sem_wait(&given_) != 0) SP_CHECK(errno == EINTR, "sem_wait: errno %d", errno);
}

SimScheduler::SimScheduler(int64_t ranks, uint64_t seed)
    : random_(seed), leaning_(static_cast<Leaning>(random_.Below(3))), turns_(ranks) {
  for (int64_t rank = 0; rank < ranks; ++rank) {
    states_.push_back(State::kRunnable);
    place_.push_back(runnable_.size());
    runnable_.push_back(rank);
  }
}

void SimScheduler::Run(const std::function<void(int64_t rank)>& be_rank,
                       std::function<void()> stuck) {
  stuck_ = std::move(stuck);
  std::vector<std::thread> threads;
  threads.reserve(states_.size());
  for (int64_t rank = 0; rank < static_cast<int64_t>(states_.size()); ++rank) {
    threads.emplace_back([this, rank, &be_rank] {
      turns_[rank].Await();
      be_rank(rank);
      SetState(rank, State::kDone);
      PassOn(rank);
    });
  }
  current_ = ChooseRank();
  turns_[current_].Give();
  all_done_.Await();
  for (std::thread& thread : threads) thread.join();
}

void SimScheduler::SetState(int64_t rank, State state) {
  const bool was = states_[rank] == State::kRunnable;
  states_[rank] = state;
  if (was == (state == State::kRunnable)) return;
  if (was) {
    const int64_t last = runnable_.back();
    runnable_[place_[rank]] = last;
    place_[last] = place_[rank];
    runnable_.pop_back();
  } else {
    place_[rank] = runnable_.size();
    runnable_.push_back(rank);
  }
}

bool SimScheduler::IsEventsTurn() {
  if (events_.empty()) return false;
  if (runnable_.empty()) return true;
  switch (leaning_) {
    case Leaning::kEventsFirst:
      return true;
    case Leaning::kEventsLast:
      return false;
    case Leaning::kNone:
      break;
  }
  return random_.Below(events_.size() + runnable_.size()) < events_.size();
}

void SimScheduler::HappenOne() {
  std::swap(events_[random_.Below(events_.size())], events_.back());
  const std::function<void()> event = std::move(events_.back());
  events_.pop_back();
  event();
}

int64_t SimScheduler::ChooseRank() {
  for (;;) {
    ++steps_;
    if (IsEventsTurn()) {
      HappenOne();
    } else if (!runnable_.empty()) {
      return runnable_[random_.Below(runnable_.size())];
    } else {
      bool left = false;
      for (const State state : states_) left = left || state != State::kDone;
      if (!left) return -1;
      stuck_();
      SP_CHECK(!runnable_.empty(), "nobody was woken");
    }
  }
}

void SimScheduler::PassOn(int64_t rank) {
  const bool done = IsDone(rank);
  const int64_t next = ChooseRank();
  if (next == rank) return;
  current_ = next;
  if (next < 0) {
    all_done_.Give();
  } else {
    turns_[next].Give();
  }
  if (!done) turns_[rank].Await();
}

void SimScheduler::Yield() { PassOn(current_); }

void SimScheduler::Block() {
  SetState(current_, State::kBlocked);
  PassOn(current_);
}

void SimScheduler::Wake(int64_t rank) {
  if (states_[rank] == State::kBlocked) SetState(rank, State::kRunnable);
}

}  // namespace shardproof
