#include "verify/maps/coverage.h"

#include <fmt/format.h>

#include <algorithm>

#include "verify/oracle/quote.h"

namespace shardproof::maps {

void Coverage::Add(const View& view, const Rule& rule) {
  ForEachStored(view, [&](const View& box) {
    if (!box.repeats) taken_[box.stored].push_back({box.offsets, box.shape, &rule});
  });
}

bool Coverage::Overlap(const Box& x, const Box& y) {
  for (size_t dim = 0; dim < x.offsets.size(); ++dim) {
    if (x.offsets[dim] >= y.offsets[dim] + y.sizes[dim]) return false;
    if (y.offsets[dim] >= x.offsets[dim] + x.sizes[dim]) return false;
  }
  return true;
}

Status Coverage::CheckApart() const {
  for (const auto& [tensor, taken] : taken_) {
    std::vector<Box> boxes = taken;
    std::sort(boxes.begin(), boxes.end(),
              [](const Box& x, const Box& y) { return x.offsets < y.offsets; });
    for (size_t i = 0; i < boxes.size(); ++i) {
      for (size_t j = i + 1; j < boxes.size(); ++j) {
        // Sorted by the first dim: the rest begins behind this one.
        if (!boxes[i].offsets.empty() &&
            boxes[j].offsets[0] >= boxes[i].offsets[0] + boxes[i].sizes[0]) {
          break;
        }
        if (!Overlap(boxes[i], boxes[j])) continue;
        // The rules lie in one array, in the order of the map.
        const auto [first, second] = std::minmax(boxes[i].rule, boxes[j].rule);
        return BadInput(fmt::format(
            "{}: expected every element of {} in one place of the map, found some of {} twice{}; "
            "x & y -> z holds two tensors against one",
            second->where, side_.name, oracle::Quote(tensor->name),
            first == second ? "" : fmt::format(", first at {}", first->where)));
      }
    }
  }
  return Ok();
}

uint64_t Coverage::FirstMissing(const formats::StoredTensor& tensor,
                                const std::vector<Box>& boxes) {
  constexpr int kStepsMax = 100'000;
  const std::vector<int64_t> strides = formats::RowMajorStrides(tensor.shape);
  uint64_t element = 0;
  for (int step = 0; step < kStepsMax; ++step) {
    const auto holds = [&](const Box& box) {
      uint64_t rest = element;
      for (size_t dim = 0; dim < strides.size(); ++dim) {
        const auto at = static_cast<int64_t>(rest / static_cast<uint64_t>(strides[dim]));
        rest %= static_cast<uint64_t>(strides[dim]);
        if (at < box.offsets[dim] || at >= box.offsets[dim] + box.sizes[dim]) return false;
      }
      return true;
    };
    const auto box = std::find_if(boxes.begin(), boxes.end(), holds);
    if (box == boxes.end()) return element;
    // To the end of what the box has in one stretch: whole rows where it is as wide as the tensor.
    size_t dim = strides.size() - 1;
    while (dim > 0 && box->sizes[dim] == tensor.shape[dim]) --dim;
    const auto stride = static_cast<uint64_t>(strides[dim]);
    const auto row = static_cast<uint64_t>(tensor.shape[dim]) * stride;
    element =
        element / row * row + static_cast<uint64_t>(box->offsets[dim] + box->sizes[dim]) * stride;
  }
  return element;
}

void Coverage::AddGaps(std::vector<Gap>& gaps) const {
  for (const auto& [tensor, boxes] : taken_) {
    uint64_t taken = 0;
    for (const Box& box : boxes) {
      taken += oracle::CheckedElements(box.sizes.data(), box.sizes.size()).value_or(0);
    }
    if (taken >= tensor->Elements()) continue;
    gaps.push_back({side_.name, tensor->name, tensor->Elements() - taken, tensor->Elements(),
                    FirstMissing(*tensor, boxes)});
  }
}

}  // namespace shardproof::maps
