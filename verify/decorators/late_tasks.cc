#include "verify/decorators/late_tasks.h"

#include <optional>

namespace shardproof {
namespace {

class LateTask : public PendingTask {
 public:
  explicit LateTask(std::function<Status()> task) : task_(std::move(task)) {}
  Status Wait() override {
    if (!outcome_) outcome_ = task_();
    return *outcome_;
  }

 private:
  std::function<Status()> task_;
  std::optional<Status> outcome_;
};

class LateTasks : public Background {
 public:
  std::unique_ptr<PendingTask> Start(std::function<Status()> task) override {
    return std::make_unique<LateTask>(std::move(task));
  }
};

}  // namespace

std::shared_ptr<Background> DelayTasks() { return std::make_shared<LateTasks>(); }

}  // namespace shardproof
