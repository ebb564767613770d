// The seam to work that goes on beside what its caller does next: the files of a save while the job
// takes its steps.
#pragma once

#include <functional>
#include <memory>

#include "src/core/result.h"

namespace shardproof {

/// A task under way.
class PendingTask {
 public:
  virtual ~PendingTask() = default;
  /// Returns once it has ended: what it returned, however often it is asked.
  virtual Status Wait() = 0;
};

class Background {
 public:
  virtual ~Background() = default;
  /// Begins a task, which must not throw and makes no collective: those of one rank have one order.
  /// It goes on until it ends, also if nobody waits for it.
  virtual std::unique_ptr<PendingTask> Start(std::function<Status()> task) = 0;
};

}  // namespace shardproof
