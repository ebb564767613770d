// Two dims of a tensor swapped, in slabs: a row of the result is a column of the file, so as many
// columns as fit are read together.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "verify/maps/tensor_reader.h"
#include "verify/maps/turn.h"

namespace shardproof::maps {
namespace {

// Half as much takes a third longer: every row of a slab is a read of its own.
constexpr uint64_t kSlabBytesMax = 32u << 20;

std::vector<int64_t> Swapped(std::vector<int64_t> shape, size_t a, size_t b) {
  std::swap(shape[a], shape[b]);
  return shape;
}

uint64_t Product(const std::vector<int64_t>& shape, size_t begin, size_t end) {
  return oracle::CheckedElements(shape.data() + begin, end - begin).value_or(0);
}

struct Freed {
  void operator()(char* memory) const { std::free(memory); }
};
using Slab = std::unique_ptr<char, Freed>;

/// Memory for one slab, in huge pages where the system has them: each column of a slab is written
/// on a page of its own, and there are more columns than the processor remembers small pages.
Slab MakeSlab() {
  constexpr size_t kHugePage = 2u << 20;
  static_assert(kSlabBytesMax % kHugePage == 0);
  Slab slab(static_cast<char*>(std::aligned_alloc(kHugePage, kSlabBytesMax)));
  if (!slab) throw std::bad_alloc();
  ::madvise(slab.get(), kSlabBytesMax, MADV_HUGEPAGE);
  return slab;
}

/// Slabs whose readers are done, for the next ones of the thread: fresh pages cost as much as what
/// is read into them.
class SpareSlabs {
 public:
  Slab Take() {
    if (slabs_.empty()) return MakeSlab();
    Slab slab = std::move(slabs_.back());
    slabs_.pop_back();
    return slab;
  }

  void Give(Slab slab) {
    if (slab && slabs_.size() < kMost) slabs_.push_back(std::move(slab));
  }

 private:
  static constexpr size_t kMost = 2;  // of both sides of a comparison
  std::vector<Slab> slabs_;
};

thread_local SpareSlabs spare_slabs;

// The base is seen as [outer, rows, between, columns, inner], where rows and columns are the two
// dims; the result is [outer, columns, between, rows, inner].
class TransposeReader : public TensorReader {
 public:
  TransposeReader(Reader base, size_t first, size_t second)
      : TensorReader(base->dtype(), Swapped(base->shape(), first, second)),
        base_(std::move(base)),
        rows_(static_cast<uint64_t>(base_->shape()[first])),
        between_(Product(base_->shape(), first + 1, second)),
        columns_(static_cast<uint64_t>(base_->shape()[second])),
        inner_(Product(base_->shape(), second + 1, base_->shape().size())),
        column_elements_(rows_ * between_ * inner_) {}
  ~TransposeReader() override { spare_slabs.Give(std::move(slab_)); }

  Status Read(uint64_t start, uint64_t count, char* out) override {
    if (column_elements_ * width() > kSlabBytesMax) return ReadSingly(start, count, out);
    while (count > 0) {
      if (start < slab_start_ || start >= slab_start_ + slab_elements_) {
        SP_TRY(LoadSlab(start / column_elements_));
      }
      const uint64_t within = start - slab_start_;
      const uint64_t step = std::min(count, slab_elements_ - within);
      std::memcpy(out, slab_.get() + within * width(), step * width());
      start += step;
      count -= step;
      out += step * width();
    }
    if (start == elements()) {  // of many that are joined, one after the other holds a slab
      spare_slabs.Give(std::move(slab_));
      slab_elements_ = 0;
      strip_ = {};
    }
    return Ok();
  }

 private:
  uint64_t BaseIndex(uint64_t outer, uint64_t row, uint64_t middle, uint64_t column) const {
    return (((outer * rows_ + row) * between_ + middle) * columns_ + column) * inner_;
  }

  /// Loads the slab that begins with column `flat` % columns_ of outer `flat` / columns_.
  Status LoadSlab(uint64_t flat) {
    const uint64_t outer = flat / columns_;
    const uint64_t column = flat % columns_;
    const uint64_t fitting = std::max<uint64_t>(1, kSlabBytesMax / (column_elements_ * width()));
    const uint64_t taken = std::min(fitting, columns_ - column);
    const uint64_t run = inner_ * width();
    if (!slab_) slab_ = spare_slabs.Take();
    slab_elements_ = taken * column_elements_;
    strip_.resize(taken * run);
    slab_start_ = flat * column_elements_;
    if (inner_ == 1 && between_ == 1) return LoadMatrix(outer, column, taken);
    for (uint64_t row = 0; row < rows_; ++row) {
      for (uint64_t middle = 0; middle < between_; ++middle) {
        SP_TRY(base_->Read(BaseIndex(outer, row, middle, column), taken * inner_, strip_.data()));
        for (uint64_t i = 0; i < taken; ++i) {
          const uint64_t to = i * column_elements_ + (middle * rows_ + row) * inner_;
          std::memcpy(slab_.get() + to * width(), strip_.data() + i * run, run);
        }
      }
    }
    return Ok();
  }

  /// A slab of a plain matrix: some rows at a time, so that each column takes a stretch of them and
  /// not one element.
  Status LoadMatrix(uint64_t outer, uint64_t column, uint64_t taken) {
    const uint64_t rows_taken = kStretchBytes / width();
    strip_.resize(rows_taken * taken * width());
    for (uint64_t row = 0; row < rows_; row += rows_taken) {
      const uint64_t count = std::min(rows_taken, rows_ - row);
      // Whole rows lie one behind the other.
      const uint64_t reads = taken == columns_ ? 1 : count;
      for (uint64_t i = 0; i < reads; ++i) {
        SP_TRY(base_->Read(BaseIndex(outer, row + i, 0, column), taken * (count / reads),
                           strip_.data() + i * taken * width()));
      }
      char* const to = slab_.get() + row * width();
      switch (width()) {
        case 1:
          Turn<uint8_t>(strip_.data(), count, taken, to, rows_);
          break;
        case 2:
          Turn<uint16_t>(strip_.data(), count, taken, to, rows_);
          break;
        case 4:
          Turn<uint32_t>(strip_.data(), count, taken, to, rows_);
          break;
        case 8:
          Turn<uint64_t>(strip_.data(), count, taken, to, rows_);
          break;
        default:
          Turn<std::array<uint64_t, 2>>(strip_.data(), count, taken, to, rows_);
          break;
      }
    }
    return Ok();
  }

  /// For a column too large to hold: run by run. Slow, and right.
  Status ReadSingly(uint64_t start, uint64_t count, char* out) {
    while (count > 0) {
      const uint64_t within = start % inner_;
      const uint64_t cell = start / inner_;
      const uint64_t row = cell % rows_;
      const uint64_t middle = cell / rows_ % between_;
      const uint64_t flat = cell / rows_ / between_;
      const uint64_t step = std::min(count, inner_ - within);
      const uint64_t from = BaseIndex(flat / columns_, row, middle, flat % columns_) + within;
      SP_TRY(base_->Read(from, step, out));
      start += step;
      count -= step;
      out += step * width();
    }
    return Ok();
  }

  Reader base_;
  uint64_t rows_;
  uint64_t between_;
  uint64_t columns_;
  uint64_t inner_;
  uint64_t column_elements_;
  Slab slab_;
  uint64_t slab_elements_ = 0;
  std::vector<char> strip_;
  uint64_t slab_start_ = 0;
};

}  // namespace

Reader Transpose(Reader base, size_t dim_a, size_t dim_b) {
  const auto [first, second] = std::minmax(dim_a, dim_b);
  if (first == second) return base;
  return std::make_unique<TransposeReader>(std::move(base), first, second);
}

}  // namespace shardproof::maps
