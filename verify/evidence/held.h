// What a process holds at a stage of a job, in bytes: the record `held` of FORMAT.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shardproof {

/// Memory that a process has resident, by what is behind it.
struct HostBytes {
  uint64_t anonymous = 0;
  uint64_t shared = 0;  ///< shared memory, such as files of /dev/shm
  uint64_t file = 0;    ///< mapped pages of other files: page cache
};

/// The most since the stage before, of readings in an interval.
struct HeldPeak {
  uint64_t anonymous = 0;
  uint64_t shared = 0;  ///< each for itself: it need not be at one moment
  double time_ms = 0;   ///< when both together were most
  double interval_ms = 0;
  uint64_t stacks_bytes = 0;  ///< what was held when the stacks were taken; 0: none were
  /// Of the main thread, then of others that did not wait; innermost frame first.
  std::vector<std::vector<std::string>> stacks;
};

struct HeldTensors {
  std::string of;  ///< "parameter", "buffer", "gradient", "optimizer", or "other"
  std::string device;
  uint64_t bytes = 0;
  uint64_t anonymous = 0;  ///< of them, what is anonymous memory of the host
};

struct HeldDevice {
  std::string device;
  uint64_t allocated = 0;
  uint64_t reserved = 0;
  uint64_t peak_allocated = 0;  ///< since the process began, or set the allocator's count back
  uint64_t peak_reserved = 0;
};

/// Who holds memory or allocated it.
struct HeldBy {
  std::string by;  ///< "holder", "python" or "device"
  std::string what;
  uint64_t bytes = 0;
  uint64_t count = 0;
  std::vector<std::string> stack;
};

struct HeldRecord {
  std::string stage;
  int64_t step = 0;
  double time_ms = 0;
  HostBytes host;
  uint64_t locked = 0;                    ///< by mlock or a driver
  std::optional<uint64_t> pinned;         ///< by CUDA's host allocator
  std::optional<HostBytes> proportional;  ///< each page by one part in as many as map it
  std::optional<HeldPeak> peak;
  std::vector<HeldTensors> tensors;
  std::vector<HeldDevice> devices;
  std::vector<HeldBy> who;

  std::string Key() const;  ///< that of the stage: "stepped@3"
};

}  // namespace shardproof
