#include "src/seam/background.h"

#include <optional>
#include <thread>

namespace shardproof {
namespace {

class ThreadTask : public PendingTask {
 public:
  explicit ThreadTask(std::function<Status()> task)
      : thread_([this, run = std::move(task)] { outcome_ = run(); }) {}
  ~ThreadTask() override {
    if (thread_.joinable()) thread_.join();
  }
  ThreadTask(const ThreadTask&) = delete;
  ThreadTask& operator=(const ThreadTask&) = delete;

  Status Wait() override {
    if (thread_.joinable()) thread_.join();
    return *outcome_;
  }

 private:
  std::optional<Status> outcome_;
  std::thread thread_;  // last: it writes the other
};

class Threads : public Background {
 public:
  std::unique_ptr<PendingTask> Start(std::function<Status()> task) override {
    return std::make_unique<ThreadTask>(std::move(task));
  }
};

}  // namespace

std::shared_ptr<Background> MakeThreads() { return std::make_shared<Threads>(); }

}  // namespace shardproof
