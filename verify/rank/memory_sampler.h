// Memory of this rank over time, the host's anonymous and what it has of a device: a thread that
// samples every millisecond, and anyone who knows a moment that matters.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "src/seam/device.h"
#include "verify/evidence/writer.h"

namespace shardproof {

class MemorySampler {
 public:
  /// Takes the idle figure now and begins to sample. \param writer outlives the sampler.
  MemorySampler(EvidenceWriter& writer, std::shared_ptr<const Device> device);
  ~MemorySampler();
  /// Takes one sample. Any thread.
  void Sample();
  /// Notes what is held after a save.
  void Saved();
  /// Names the stage that samples belong to.
  void SetStage(Stage stage);
  /// Ends sampling and writes the summary.
  Status Finish(uint64_t own_shard_bytes, uint64_t device_own_shard_bytes);

 private:
  void Run();
  void Stop();

  EvidenceWriter& writer_;
  const std::shared_ptr<const Device> device_;
  const std::chrono::steady_clock::time_point begin_;
  std::mutex mutex_;
  MemoryRecord record_;            // guarded by mutex_; samples go straight to the writer
  std::string stage_ = "start";    // guarded by mutex_
  double last_written_ms_ = -1e9;  // guarded by mutex_
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace shardproof
