// Processes that run cases side by side and say what each came to. A case that takes its process
// along costs that process alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/campaign/outcome.h"
#include "verify/process/line_child.h"

namespace shardproof {

/// How long who has nothing else to do waits for outcomes.
inline constexpr auto kPatience = std::chrono::milliseconds(200);

class Workers {
 public:
  /// \param run  called in a worker, `slot` being its number from 0: runs the case that `order`, a
  /// line,
  ///   stands for to its outcome.
  /// \param deadline  a worker that takes longer for one case is ended.
  /// This process must have no threads, now and whenever Collect is called.
  Workers(size_t count, std::function<CaseOutcome(size_t slot, const std::string& order)> run,
          std::chrono::milliseconds deadline);

  bool HasRoom() const;
  bool IsIdle() const;
  /// Has a worker run this next, if there is room. \error kInternal if no process can be made.
  Status Give(uint64_t index, const std::string& order);
  /// What was finished since, by the index that it was given with, after waiting at most
  /// `patience`, or until a signal came. A worker that died or took too long gives an outcome that
  /// was not judged, with that reason, and is replaced.
  std::vector<CaseOutcome> Collect(std::chrono::milliseconds patience);

 private:
  struct Given {
    uint64_t index = 0;
    std::string order;
  };
  struct Worker {
    LineChild process;
    std::vector<Given> given;                     ///< in the order in which they are run
    std::chrono::steady_clock::time_point since;  ///< of the first of them
  };

  Status Start(size_t slot);
  /// Outcomes that have come; false if the worker is gone.
  bool Receive(Worker& worker, std::vector<CaseOutcome>& outcomes);
  enum class Loss { kEnded, kHang };
  /// Ends the worker at `slot`, and tells as the outcome of the case that it was at how it ended,
  /// or that it had to be ended.
  CaseOutcome Lose(size_t slot, Loss loss);

  std::function<CaseOutcome(size_t, const std::string&)> run_;
  std::chrono::milliseconds deadline_;
  std::vector<Worker> workers_;
};

}  // namespace shardproof
