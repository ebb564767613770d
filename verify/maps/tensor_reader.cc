#include "verify/maps/tensor_reader.h"

#include <algorithm>
#include <cstring>

namespace shardproof::maps {
namespace {

/// Elements in one step of `dim`: the product of the sizes behind it.
uint64_t StepOf(const std::vector<int64_t>& shape, size_t dim) {
  return oracle::CheckedElements(shape.data() + dim + 1, shape.size() - dim - 1).value_or(0);
}

std::vector<int64_t> JoinedShape(const std::vector<Reader>& parts, size_t dim) {
  std::vector<int64_t> shape = parts.front()->shape();
  for (size_t i = 1; i < parts.size(); ++i) shape[dim] += parts[i]->shape()[dim];
  return shape;
}

class ConcatReader : public TensorReader {
 public:
  ConcatReader(std::vector<Reader> parts, size_t dim)
      : TensorReader(parts.front()->dtype(), JoinedShape(parts, dim)), parts_(std::move(parts)) {
    for (const Reader& part : parts_) {
      row_ += static_cast<uint64_t>(part->shape()[dim]) * StepOf(part->shape(), dim);
      ends_.push_back(row_);
    }
  }

  Status Read(uint64_t start, uint64_t count, char* out) override {
    while (count > 0) {
      const uint64_t outer = start / row_;
      const uint64_t within = start % row_;
      const size_t part = std::upper_bound(ends_.begin(), ends_.end(), within) - ends_.begin();
      const uint64_t part_begin = part == 0 ? 0 : ends_[part - 1];
      const uint64_t part_row = ends_[part] - part_begin;
      const uint64_t step = std::min(count, ends_[part] - within);
      SP_TRY(parts_[part]->Read(outer * part_row + within - part_begin, step, out));
      start += step;
      count -= step;
      out += step * width();
    }
    return Ok();
  }

 private:
  std::vector<Reader> parts_;
  std::vector<uint64_t> ends_;  ///< within one row of the whole: where each part ends
  uint64_t row_ = 0;            ///< elements of `dim` and all behind it
};

std::vector<int64_t> WithSize(std::vector<int64_t> shape, size_t dim, int64_t size) {
  shape[dim] = size;
  return shape;
}

class NarrowReader : public TensorReader {
 public:
  NarrowReader(Reader base, size_t dim, int64_t start, int64_t length)
      : TensorReader(base->dtype(), WithSize(base->shape(), dim, length)),
        base_(std::move(base)),
        skipped_(static_cast<uint64_t>(start) * StepOf(shape(), dim)),
        row_(static_cast<uint64_t>(length) * StepOf(shape(), dim)),
        base_row_(static_cast<uint64_t>(base_->shape()[dim]) * StepOf(shape(), dim)) {}

  Status Read(uint64_t start, uint64_t count, char* out) override {
    while (count > 0) {
      const uint64_t within = start % row_;
      const uint64_t step = std::min(count, row_ - within);
      SP_TRY(base_->Read(start / row_ * base_row_ + skipped_ + within, step, out));
      start += step;
      count -= step;
      out += step * width();
    }
    return Ok();
  }

 private:
  Reader base_;
  uint64_t skipped_;  ///< elements before the narrowed ones, in each row of the base
  uint64_t row_;
  uint64_t base_row_;
};

}  // namespace

TensorReader::TensorReader(const oracle::DtypeInfo& dtype, std::vector<int64_t> shape)
    : dtype_(dtype),
      shape_(std::move(shape)),
      elements_(oracle::CheckedElements(shape_.data(), shape_.size()).value_or(0)) {}

Reader Concatenate(std::vector<Reader> parts, size_t dim) {
  return std::make_unique<ConcatReader>(std::move(parts), dim);
}

Reader Narrow(Reader base, size_t dim, int64_t start, int64_t length) {
  return std::make_unique<NarrowReader>(std::move(base), dim, start, length);
}

}  // namespace shardproof::maps
