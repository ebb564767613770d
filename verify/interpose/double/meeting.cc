#include "verify/interpose/double/meeting.h"

#include <string.h>

namespace meeting {

ncclResult_t Place::Meet(int rank, const Part& part, const Work& work, const bool& aborted) {
  std::unique_lock lock(mutex_);
  const int64_t number = numbers_[static_cast<size_t>(rank)]++;
  Round& round = rounds_[number];
  round.parts.resize(static_cast<size_t>(ranks));
  round.parts[static_cast<size_t>(rank)] = part;
  if (++round.arrived == ranks) {
    work(round.parts);
    round.done = true;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return round.done || aborted; });
  const bool is_done = round.done;
  if (is_done && ++round.left == ranks) rounds_.erase(number);
  return is_done ? ncclSuccess : ncclRemoteError;
}

void Place::Send(int from, int to, std::vector<char> message) {
  const std::lock_guard lock(mutex_);
  messages_[{from, to}].push_back(std::move(message));
  changed_.notify_all();
}

ncclResult_t Place::Receive(int from, int to, char* out, size_t bytes, const bool& aborted) {
  std::unique_lock lock(mutex_);
  std::deque<std::vector<char>>& waiting = messages_[{from, to}];
  changed_.wait(lock, [&] { return !waiting.empty() || aborted; });
  if (waiting.empty()) return ncclRemoteError;
  const std::vector<char> message = std::move(waiting.front());
  waiting.pop_front();
  if (message.size() != bytes) return ncclInvalidUsage;
  ::memcpy(out, message.data(), bytes);
  return ncclSuccess;
}

void Place::Abort(bool& aborted) {
  const std::lock_guard lock(mutex_);
  aborted = true;
  changed_.notify_all();
}

}  // namespace meeting
