// Runs as the segments of a launch of the digest's CUDA kernel (digest_thread.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/digest/digest_thread.h"

namespace shardproof::digest_internal {

/// Segments travel as the kernel's parameters, of which there may be 32,764 bytes: so nothing is
/// copied to the device and waited for, and a CUDA graph keeps them.
inline constexpr uint32_t kSegmentsMax = 480;
/// A launch of at most so many segments has the smaller parameters.
inline constexpr uint32_t kFewSegments = 8;
/// Far more than any memory holds, and few enough that sums of them do not overflow.
inline constexpr uint64_t kUnitsMax = uint64_t{1} << 40;

/// \returns how many units the segment has, 0 if it is empty, more than kUnitsMax if too many.
inline uint64_t UnitsOf(const Segment& segment) {
  if (segment.length == 0 || segment.count == 0) return 0;
  uint64_t per_stretch = IsLong(segment) ? BlocksOfStretch(segment) : VectorsOfStretch(segment);
  uint64_t units = 0;
  if (__builtin_mul_overflow(segment.count, per_stretch, &units)) return kUnitsMax + 1;
  return IsLong(segment) ? units : units / kThreads + (units % kThreads != 0);
}

/// Collects runs; `Launch` is called with the segments of each launch and how many units they have.
class Planner {
 public:
  /// \returns whether the run's stretches can be counted.
  bool Add(const sp_run& run, uint32_t row, sp_float_format format) {
    Segment segment = {run.global_start,
                       run.length,
                       run.count,
                       run.global_stride,
                       static_cast<const uint8_t*>(run.data),
                       run.data_stride,
                       0,
                       row,
                       static_cast<uint32_t>(format)};
    if (UnitsOf(segment) > kUnitsMax) return false;
    if (UnitsOf(segment) > 0) segments_.push_back(segment);
    return true;
  }

  /// Calls `launch(segments, unit_count)` until all segments were in one.
  template <typename Launch>
  void ForEach(const Launch& launch) {
    std::span<Segment> rest = segments_;
    while (!rest.empty()) {
      uint64_t units = 0;
      size_t taken = 0;
      for (; taken < rest.size() && taken < kSegmentsMax && units <= kUnitsMax; ++taken) {
        rest[taken].first_unit = units;
        units += UnitsOf(rest[taken]);
      }
      launch(rest.first(taken), units);
      rest = rest.subspan(taken);
    }
  }

 private:
  std::vector<Segment> segments_;
};

}  // namespace shardproof::digest_internal
