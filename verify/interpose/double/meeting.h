// Where the ranks of the NCCL double meet: threads of one process, one communicator each.
#pragma once

#include <nccl.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace meeting {

/// What one rank brings to a collective.
struct Part {
  const char* send = nullptr;
  char* recv = nullptr;
  size_t bytes = 0;  ///< of one rank's share
  ncclDataType_t type = ncclUint8;
  int root = 0;
};

/// Done once all are there, by whoever came last.
using Work = std::function<void(std::vector<Part>& parts)>;

/// The ranks of a communicator. The n-th collective of each rank is the n-th of all: one that a
/// rank leaves out makes its next one meet the others' before, as with NCCL.
class Place {
 public:
  explicit Place(int ranks) : ranks(ranks), numbers_(static_cast<size_t>(ranks)) {}
  const int ranks;

  /// Returns when all ranks have come, or this one has been aborted.
  /// \error ncclRemoteError if it was
  ncclResult_t Meet(int rank, const Part& part, const Work& work, const bool& aborted);
  void Send(int from, int to, std::vector<char> message);
  ncclResult_t Receive(int from, int to, char* out, size_t bytes, const bool& aborted);
  /// Sets `aborted` of a rank, and wakes it.
  void Abort(bool& aborted);

 private:
  struct Round {
    std::vector<Part> parts;
    int arrived = 0, left = 0;
    bool done = false;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int64_t> numbers_;
  std::map<int64_t, Round> rounds_;
  std::map<std::pair<int, int>, std::deque<std::vector<char>>> messages_;
};

}  // namespace meeting
