#include "verify/maps/numbers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "verify/maps/view.h"

namespace shardproof::maps {
namespace {

using oracle::DtypeInfo;
using oracle::NumberKind;

constexpr uint64_t kNumbersHeld = 4096;
constexpr double kF32Unit = 0x1p-24;

double Decode(const DtypeInfo& dtype, const char* element) {
  const uint64_t bits = oracle::LoadBits(element, dtype.bytes);
  switch (dtype.kind) {
    case NumberKind::kFloat:
      return oracle::DecodeFloat(dtype.format, bits);
    case NumberKind::kScale:
      return oracle::DecodeScale(static_cast<uint8_t>(bits));
    case NumberKind::kSigned: {
      const int unused = 64 - 8 * dtype.bytes;
      return static_cast<double>(static_cast<int64_t>(bits << unused) >> unused);
    }
    default:
      return static_cast<double>(bits);
  }
}

/// `count` elements as doubles. What is common is told apart once, and not for each element.
void DecodeAll(const DtypeInfo& dtype, const char* in, uint64_t count, double* out) {
  const bool ieee = dtype.kind == NumberKind::kFloat;
  if (ieee && dtype.bytes == 4) {
    for (uint64_t i = 0; i < count; ++i) {
      float value;
      std::memcpy(&value, in + i * sizeof value, sizeof value);
      out[i] = value;
    }
  } else if (ieee && dtype.bytes == 8) {
    std::memcpy(out, in, count * sizeof(double));
  } else if (ieee && dtype.bytes == 2 && dtype.format.exponent_bits == 8) {
    for (uint64_t i = 0; i < count; ++i) {
      const auto bits = static_cast<uint32_t>(oracle::LoadBits(in + 2 * i, 2)) << 16;
      out[i] = std::bit_cast<float>(bits);
    }
  } else {
    for (uint64_t i = 0; i < count; ++i) {
      out[i] = Decode(dtype, in + i * static_cast<uint64_t>(dtype.bytes));
    }
  }
}

class NumberReader : public TensorReader {
 public:
  NumberReader(Reader base, double unit, double least)
      : TensorReader(kNumber, base->shape()), base_(std::move(base)), unit_(unit), least_(least) {}

  Status Read(uint64_t start, uint64_t count, char* out) override {
    piece_.resize(std::min(kNumbersHeld, count) * base_->width());
    while (count > 0) {
      const uint64_t step = std::min(kNumbersHeld, count);
      SP_TRY(base_->Read(start, step, piece_.data()));
      if (&base_->dtype() == &kNumber) {
        for (uint64_t i = 0; i < step; ++i, out += sizeof(Number)) {
          Number number;
          std::memcpy(&number, piece_.data() + i * sizeof number, sizeof number);
          number.bound += unit_ * (std::abs(number.value) + number.bound) + least_;
          std::memcpy(out, &number, sizeof number);
        }
      } else {
        values_.resize(step);
        DecodeAll(base_->dtype(), piece_.data(), step, values_.data());
        for (uint64_t i = 0; i < step; ++i, out += sizeof(Number)) {
          const Number number{values_[i], unit_ * std::abs(values_[i]) + least_};
          std::memcpy(out, &number, sizeof number);
        }
      }
      start += step;
      count -= step;
    }
    return Ok();
  }

 private:
  Reader base_;
  double unit_;
  double least_;
  std::vector<char> piece_;
  std::vector<double> values_;
};

Number Times(const Number& x, const Number& y) {
  return {x.value * y.value,
          std::abs(x.value) * y.bound + std::abs(y.value) * x.bound + x.bound * y.bound};
}

Number Apply(const Number& x, char operation, const Number& y) {
  switch (operation) {
    case '+':
      return {x.value + y.value, x.bound + y.bound};
    case '-':
      return {x.value - y.value, x.bound + y.bound};
    case '*':
      return Times(x, y);
    default:
      break;
  }
  const double value = x.value / y.value;
  const double least = std::abs(y.value) - y.bound;
  // |x/y - x'/y'| <= (dx + |x/y| dy) / (|y| - dy); of an exact quotient nothing.
  const double error = x.bound + std::abs(value) * y.bound;
  return {value, error == 0 ? 0 : error / least};
}

/// Numbers read in pieces, by those that look at several readers at once.
Status ReadNumbers(TensorReader& reader, uint64_t start, std::vector<Number>& out) {
  return reader.Read(start, out.size(), reinterpret_cast<char*>(out.data()));
}

class CombineReader : public TensorReader {
 public:
  CombineReader(Reader left, char operation, Reader right)
      : TensorReader(kNumber, IsOne(*left, *right) ? right->shape() : left->shape()),
        left_(std::move(left)),
        right_(std::move(right)),
        operation_(operation) {}

  Status Read(uint64_t start, uint64_t count, char* out) override {
    while (count > 0) {
      const uint64_t step = std::min(kNumbersHeld, count);
      SP_TRY(Load(*left_, start, step, lefts_));
      SP_TRY(Load(*right_, start, step, rights_));
      for (uint64_t i = 0; i < step; ++i, out += sizeof(Number)) {
        const Number number = Apply(lefts_[lefts_.size() == 1 ? 0 : i], operation_,
                                    rights_[rights_.size() == 1 ? 0 : i]);
        std::memcpy(out, &number, sizeof number);
      }
      start += step;
      count -= step;
    }
    return Ok();
  }

 private:
  static bool IsOne(const TensorReader& left, const TensorReader& right) {
    return left.elements() == 1 &&
           (right.elements() > 1 || right.shape().size() > left.shape().size());
  }

  Status Load(TensorReader& reader, uint64_t start, uint64_t count, std::vector<Number>& out) {
    const bool one = reader.elements() == 1;
    out.resize(one ? 1 : count);
    return ReadNumbers(reader, one ? 0 : start, out);
  }

  Reader left_;
  Reader right_;
  char operation_;
  std::vector<Number> lefts_;
  std::vector<Number> rights_;
};

class BlockReader : public TensorReader {
 public:
  BlockReader(Reader base, char operation, Reader scale, std::vector<int64_t> block)
      : TensorReader(kNumber, base->shape()),
        base_(std::move(base)),
        operation_(operation),
        scale_(std::move(scale)),
        block_(std::move(block)) {}

  /// Row by row of the last dim, along which a block's scale stays for a while.
  Status Read(uint64_t start, uint64_t count, char* out) override {
    const auto row = static_cast<uint64_t>(shape().back());
    const auto width = static_cast<uint64_t>(block_.back());
    while (count > 0) {
      const uint64_t within = start % row;
      const uint64_t step = std::min({count, row - within, kNumbersHeld});
      values_.resize(step);
      SP_TRY(ReadNumbers(*base_, start, values_));
      const uint64_t first = within / width;
      SP_TRY(LoadScales(start / row, first, (within + step - 1) / width - first + 1));
      for (uint64_t i = 0; i < step;) {
        const Number& scale = scales_[(within + i) / width - first];
        const uint64_t end = std::min(step, ((within + i) / width + 1) * width - within);
        for (; i < end; ++i, out += sizeof(Number)) {
          const Number number = Apply(values_[i], operation_, scale);
          std::memcpy(out, &number, sizeof number);
        }
      }
      start += step;
      count -= step;
    }
    return Ok();
  }

 private:
  /// `count` scales from the `first` on of a row, given by its number among all rows.
  Status LoadScales(uint64_t row, uint64_t first, uint64_t count) {
    uint64_t index = 0;
    uint64_t step = 1;
    for (size_t dim = shape().size() - 1; dim-- > 0;) {
      const auto size = static_cast<uint64_t>(shape()[dim]);
      index += row % size / static_cast<uint64_t>(block_[dim]) * step;
      step *= static_cast<uint64_t>(scale_->shape()[dim]);
      row /= size;
    }
    index = index * static_cast<uint64_t>(scale_->shape().back()) + first;
    if (scales_.size() == count && index == loaded_) return Ok();
    scales_.resize(count);
    loaded_ = index;
    return ReadNumbers(*scale_, index, scales_);
  }

  Reader base_;
  char operation_;
  Reader scale_;
  std::vector<int64_t> block_;
  std::vector<Number> values_;
  std::vector<Number> scales_;  ///< those from element `loaded_` on
  uint64_t loaded_ = 0;
};

class AsReader : public TensorReader {
 public:
  AsReader(Reader base, const DtypeInfo& dtype, std::vector<int64_t> shape)
      : TensorReader(dtype, std::move(shape)), base_(std::move(base)) {}

  Status Read(uint64_t start, uint64_t count, char* out) override {
    return base_->Read(start, count, out);
  }

 private:
  Reader base_;
};

class MergeReader : public TensorReader {
 public:
  MergeReader(Reader weight, Reader a, Reader b, double factor, double unit)
      : TensorReader(kNumber, weight->shape()),
        weight_(std::move(weight)),
        a_(std::move(a)),
        b_(std::move(b)),
        factor_(factor),
        unit_(unit) {}

  Status Read(uint64_t start, uint64_t count, char* out) override {
    if (all_a_.empty()) {
      all_a_.resize(a_->elements());
      SP_TRY(ReadNumbers(*a_, 0, all_a_));
      row_of_b_.resize(static_cast<size_t>(a_->shape()[0]));
    }
    const auto columns = static_cast<uint64_t>(shape()[1]);
    while (count > 0) {
      const uint64_t column = start % columns;
      const uint64_t step = std::min({count, columns - column, kNumbersHeld});
      weights_.resize(step);
      SP_TRY(ReadNumbers(*weight_, start, weights_));
      SP_TRY(ReadNumbers(*b_, start / columns * row_of_b_.size(), row_of_b_));
      AddDelta(column);
      std::memcpy(out, weights_.data(), step * sizeof(Number));
      start += step;
      count -= step;
      out += step * sizeof(Number);
    }
    return Ok();
  }

 private:
  /// To the weights from `column` on. A sum of r products in any order, each step rounded to F32,
  /// is within r units of F32 of the sum of their magnitudes; the delta and its scaling are each
  /// rounded once more, to the weight's dtype at most.
  void AddDelta(uint64_t column) {
    const size_t rank = row_of_b_.size();
    const auto columns = static_cast<uint64_t>(shape()[1]);
    for (size_t i = 0; i < weights_.size(); ++i) {
      double sum = 0;
      double magnitudes = 0;
      for (size_t k = 0; k < rank; ++k) {
        const double product = row_of_b_[k].value * all_a_[k * columns + column + i].value;
        sum += product;
        magnitudes += std::abs(product);
      }
      const double delta = factor_ * sum;
      weights_[i].value += delta;
      weights_[i].bound += std::abs(factor_) * magnitudes * static_cast<double>(rank) * kF32Unit +
                           2 * unit_ * std::abs(delta);
    }
  }

  Reader weight_;
  Reader a_;
  Reader b_;
  double factor_;
  double unit_;
  std::vector<Number> all_a_;
  std::vector<Number> row_of_b_;
  std::vector<Number> weights_;
};

}  // namespace

Reader ToNumbers(Reader base, bool rounded, double unit, double least) {
  if (&base->dtype() == &kNumber && !rounded) return base;
  return std::make_unique<NumberReader>(std::move(base), rounded ? unit : 0, rounded ? least : 0);
}

Reader WithHalfSteps(Reader base) {
  const DtypeInfo& dtype = base->dtype();
  const bool is_float = &dtype != &kNumber && dtype.kind == NumberKind::kFloat;
  const int bits = dtype.format.mantissa_bits;
  return ToNumbers(std::move(base), is_float, std::ldexp(1.0, -bits - 1),
                   std::ldexp(1.0, -dtype.format.Bias() - bits));
}

Reader Combine(Reader left, char operation, Reader right) {
  return std::make_unique<CombineReader>(std::move(left), operation, std::move(right));
}

Reader CombineBlocks(Reader base, char operation, Reader scale, std::vector<int64_t> block) {
  return std::make_unique<BlockReader>(std::move(base), operation, std::move(scale),
                                       std::move(block));
}

Reader As(Reader base, const DtypeInfo& dtype, std::vector<int64_t> shape) {
  return std::make_unique<AsReader>(std::move(base), dtype, std::move(shape));
}

Reader Merge(Reader weight, Reader a, Reader b, double factor, double unit) {
  return std::make_unique<MergeReader>(std::move(weight), std::move(a), std::move(b), factor, unit);
}

}  // namespace shardproof::maps
