#include "verify/verdict/runs.h"

#include <algorithm>

namespace shardproof {
namespace {

/// Sorts and joins neighbours. Stretches that overlap are kept apart, so that they can be reported.
std::vector<Stretch> Joined(std::vector<Stretch> stretches) {
  std::sort(stretches.begin(), stretches.end(), [](const Stretch& a, const Stretch& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  std::vector<Stretch> joined;
  for (const Stretch& stretch : stretches) {
    if (stretch.begin == stretch.end) continue;
    if (!joined.empty() && joined.back().end == stretch.begin) {
      joined.back().end = stretch.end;
    } else {
      joined.push_back(stretch);
    }
  }
  return joined;
}

}  // namespace

bool Touches(const std::vector<OwnedRun>& runs, uint64_t begin, uint64_t end) {
  for (const OwnedRun& run : runs) {
    if (run.length == 0 || run.count == 0 || end <= begin || end <= run.start) continue;
    // The last stretch that starts before `end` reaches furthest.
    const uint64_t last =
        run.stride == 0 ? 0 : std::min(run.count - 1, (end - 1 - run.start) / run.stride);
    if (run.start + last * run.stride + run.length > begin) return true;
  }
  return false;
}

std::optional<std::vector<Stretch>> Expand(const std::vector<OwnedRun>& runs,
                                           uint64_t stretch_count_max) {
  std::vector<Stretch> stretches;
  for (const OwnedRun& run : runs) {
    if (run.length == 0 || run.count == 0) continue;
    OwnedRun left = run;
    if (left.count > 1 && left.stride == left.length) {  // contiguous after all
      if (__builtin_mul_overflow(left.length, left.count, &left.length)) return std::nullopt;
      left.count = 1;
    }
    if (left.count > stretch_count_max - stretches.size()) return std::nullopt;
    for (uint64_t i = 0; i < left.count; ++i) {
      uint64_t begin = 0;
      uint64_t end = 0;
      if (__builtin_mul_overflow(i, left.stride, &begin) ||
          __builtin_add_overflow(begin, left.start, &begin) ||
          __builtin_add_overflow(begin, left.length, &end)) {
        return std::nullopt;
      }
      stretches.push_back({begin, end});
    }
  }
  return Joined(std::move(stretches));
}

std::optional<std::vector<Stretch>> ExpandBox(const std::vector<int64_t>& shape,
                                              const std::vector<std::vector<Stretch>>& box,
                                              uint64_t stretch_count_max) {
  for (const std::vector<Stretch>& parts : box) {
    if (parts.empty())
      return std::vector<Stretch>{};  // an empty dim, whatever rows the others have
  }
  std::vector<Stretch> stretches = {{0, 1}};
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    const auto size = static_cast<uint64_t>(shape[dim]);
    std::vector<Stretch> next;
    const bool whole = box[dim] == std::vector<Stretch>{{0, size}};
    for (const Stretch& outer : stretches) {
      if (whole) {
        next.push_back({outer.begin * size, outer.end * size});
        continue;
      }
      uint64_t wanted = 0;
      if (__builtin_mul_overflow(outer.end - outer.begin, box[dim].size(), &wanted) ||
          wanted > stretch_count_max - next.size()) {
        return std::nullopt;
      }
      for (uint64_t row = outer.begin; row < outer.end; ++row) {
        for (const Stretch& part : box[dim]) {
          next.push_back({row * size + part.begin, row * size + part.end});
        }
      }
    }
    stretches = Joined(std::move(next));
  }
  return stretches;
}

Digest CoverageOf(const std::vector<OwnedRun>& runs, uint64_t element_bytes) {
  sp_digest coverage{};
  for (const OwnedRun& run : runs) {
    if (run.length == 0 || run.count == 0) continue;
    const sp_run bytes{run.start * element_bytes,
                       run.length * element_bytes,
                       run.count,
                       run.stride * element_bytes,
                       nullptr,
                       0};
    sp_coverage_runs(&coverage, &bytes, 1);
  }
  return Digest(coverage);
}

}  // namespace shardproof
