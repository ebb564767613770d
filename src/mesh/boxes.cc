#include "src/mesh/boxes.h"

#include <algorithm>

namespace shardproof {
namespace {

/// Elements within one index of each dim.
std::vector<uint64_t> InnerElements(const std::vector<int64_t>& shape) {
  std::vector<uint64_t> inner(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) {
    inner[d - 1] = inner[d] * static_cast<uint64_t>(shape[d]);
  }
  return inner;
}

/// Cuts elements [start, start + length) of the row-major order into boxes.
void CutStretch(const std::vector<int64_t>& shape, const std::vector<uint64_t>& inner,
                uint64_t start, uint64_t length, uint64_t local, std::vector<Box>& boxes) {
  while (length > 0) {
    // The outermost dim of which whole indices begin here, and no more of them than its end and the
    // stretch's allow.
    size_t dim = 0;
    while (dim + 1 < shape.size() && (start % inner[dim] != 0 || length < inner[dim])) ++dim;
    Box box{.local_start = local};
    uint64_t rest = start;
    for (size_t d = 0; d < shape.size(); ++d) {
      box.offsets.push_back(static_cast<int64_t>(rest / inner[d]));
      box.sizes.push_back(d < dim ? 1 : shape[d]);
      rest %= inner[d];
    }
    uint64_t taken = 1;  // of a tensor without dims
    if (!shape.empty()) {
      const auto left = static_cast<uint64_t>(shape[dim] - box.offsets[dim]);
      const uint64_t count = std::min(length / inner[dim], left);
      box.sizes[dim] = static_cast<int64_t>(count);
      taken = count * inner[dim];
    }
    boxes.push_back(std::move(box));
    start += taken;
    local += taken;
    length -= taken;
  }
}

/// Puts a box into the one before it if both are one box that follows the same order.
bool Joins(const std::vector<int64_t>& shape, Box& before, const Box& box) {
  size_t differs = shape.size();
  for (size_t d = 0; d < shape.size(); ++d) {
    if (before.offsets[d] == box.offsets[d] && before.sizes[d] == box.sizes[d]) continue;
    if (differs != shape.size()) return false;
    differs = d;
  }
  if (differs == shape.size()) return false;
  if (before.offsets[differs] + before.sizes[differs] != box.offsets[differs]) return false;
  for (size_t d = 0; d < differs; ++d) {
    if (before.sizes[d] != 1) return false;  // the order would go through another dim first
  }
  before.sizes[differs] += box.sizes[differs];
  return true;
}

}  // namespace

uint64_t Box::ElementCount() const {
  uint64_t count = 1;
  for (const int64_t size : sizes) count *= static_cast<uint64_t>(size);
  return count;
}

std::vector<Box> BoxesOf(const std::vector<int64_t>& shape, const Shard& shard) {
  const std::vector<uint64_t> inner = InnerElements(shape);
  std::vector<Box> boxes;
  uint64_t local = 0;
  for (const ElementRun& run : shard.runs) {
    for (uint64_t i = 0; i < run.count; ++i, local += run.length) {
      std::vector<Box> cut;
      CutStretch(shape, inner, run.start + i * run.stride, run.length, local, cut);
      for (Box& box : cut) {
        if (boxes.empty() || !Joins(shape, boxes.back(), box)) boxes.push_back(std::move(box));
      }
    }
  }
  return boxes;
}

Shard PartOfShard(const Shard& shard, uint64_t start, uint64_t count, uint64_t& local_start) {
  const uint64_t end = start + count;
  Shard part;
  uint64_t local = 0;
  const auto add = [&](ElementRun run, uint64_t at) {
    if (run.length == 0 || run.count == 0) return;
    if (part.runs.empty()) local_start = at;
    run.start -= start;
    part.runs.push_back(run);
  };
  for (const ElementRun& run : shard.runs) {
    // Stretches [first, last) reach into the part; only the outermost two may reach out of it.
    const auto count_below = [&](uint64_t place) {  // of stretches that begin there or before
      if (place < run.start) return uint64_t{0};
      return run.stride == 0 ? run.count
                             : std::min(run.count, (place - run.start) / run.stride + 1);
    };
    uint64_t first = start < run.length ? 0 : count_below(start - run.length);
    const uint64_t last = end == 0 ? 0 : count_below(end - 1);
    const auto add_one = [&](uint64_t i) {
      const uint64_t begin = run.start + i * run.stride;
      const uint64_t from = std::max(begin, start);
      const uint64_t to = std::min(begin + run.length, end);
      if (from < to) add({from, to - from, 1, 0}, local + i * run.length + (from - begin));
    };
    if (first < last) add_one(first++);
    if (last - first > 1 && first < last) {
      add({run.start + first * run.stride, run.length, last - 1 - first, run.stride},
          local + first * run.length);
      first = last - 1;
    }
    if (first < last) add_one(first);
    local += run.length * run.count;
  }
  return part;
}

std::vector<ElementRun> RunsOfBox(const std::vector<int64_t>& shape,
                                  const std::vector<int64_t>& offsets,
                                  const std::vector<int64_t>& sizes) {
  const std::vector<uint64_t> inner = InnerElements(shape);
  for (const int64_t size : sizes) {
    if (size == 0) return {};
  }
  // Dims from `whole` on are whole: one index of the dim before them is one stretch.
  size_t whole = shape.size();
  while (whole > 0 && sizes[whole - 1] == shape[whole - 1]) --whole;
  if (whole == 0)
    return {{0, shape.empty() ? 1 : inner[0] * static_cast<uint64_t>(shape[0]), 1, 0}};
  const size_t cut = whole - 1;
  uint64_t base = 0;
  for (size_t d = 0; d <= cut; ++d) base += static_cast<uint64_t>(offsets[d]) * inner[d];
  const uint64_t length = static_cast<uint64_t>(sizes[cut]) * inner[cut];
  if (cut == 0) return {{base, length, 1, 0}};
  // Rows of a dim repeat at one stride, and go on so in the dim before it if they are all of it.
  size_t repeat = cut - 1;
  auto count = static_cast<uint64_t>(sizes[repeat]);
  while (repeat > 0 && sizes[repeat] == shape[repeat]) {
    --repeat;
    count *= static_cast<uint64_t>(sizes[repeat]);
  }
  std::vector<ElementRun> runs;
  std::vector<int64_t> index(repeat, 0);  // of the dims before those that repeat
  for (;;) {
    uint64_t start = base;
    for (size_t d = 0; d < index.size(); ++d) start += static_cast<uint64_t>(index[d]) * inner[d];
    runs.push_back({start, length, count, count > 1 ? inner[cut - 1] : 0});
    size_t d = index.size();
    while (d > 0 && ++index[d - 1] == sizes[d - 1]) index[--d] = 0;
    if (d == 0) return runs;
  }
}

}  // namespace shardproof
