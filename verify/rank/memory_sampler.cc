#include "verify/rank/memory_sampler.h"

#include <algorithm>
#include <utility>

#include "verify/rank/pages.h"

namespace shardproof {
namespace {

constexpr auto kPeriod = std::chrono::milliseconds(1);
constexpr double kWrittenEveryMs = 5.0;  // a curve needs no more; peaks are always written

}  // namespace

MemorySampler::MemorySampler(EvidenceWriter& writer, std::shared_ptr<const Device> device)
    : writer_(writer), device_(std::move(device)), begin_(std::chrono::steady_clock::now()) {
  record_.idle_bytes = AnonymousBytes();
  Sample();
  thread_ = std::thread([this] { Run(); });
}

MemorySampler::~MemorySampler() { Stop(); }

void MemorySampler::Run() {
  while (!stop_.load(std::memory_order_relaxed)) {
    Sample();
    std::this_thread::sleep_for(kPeriod);
  }
}

void MemorySampler::Stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void MemorySampler::Sample() {
  const std::lock_guard lock(mutex_);
  const uint64_t bytes = AnonymousBytes();
  const uint64_t device_bytes = device_->Held().now;
  const double now =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin_).count();
  if (bytes > record_.peak_bytes) {
    record_.peak_bytes = bytes;
    record_.peak_stage = stage_;
  } else if (device_bytes <= record_.device_peak_bytes &&
             now - last_written_ms_ < kWrittenEveryMs) {
    return;
  }
  record_.device_peak_bytes = std::max(record_.device_peak_bytes, device_bytes);
  last_written_ms_ = now;
  // A lost sample costs a point of a curve; the peak is in the summary, whose loss is an error.
  (void)writer_.Memory({now, bytes, device_bytes, stage_});
}

void MemorySampler::Saved() {
  const std::lock_guard lock(mutex_);
  record_.after_saves_bytes.push_back(static_cast<int64_t>(AnonymousBytes()));
}

void MemorySampler::SetStage(Stage stage) {
  const std::lock_guard lock(mutex_);
  stage_ = NameOf(stage);
}

Status MemorySampler::Finish(uint64_t own_shard_bytes, uint64_t device_own_shard_bytes) {
  Stop();
  Sample();
  record_.own_shard_bytes = own_shard_bytes;
  record_.device_peak_bytes = device_->Held().peak;
  record_.device_own_shard_bytes = device_own_shard_bytes;
  return writer_.MemorySummary(record_);
}

}  // namespace shardproof
