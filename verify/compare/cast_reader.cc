// A tensor's elements rounded to another float dtype, once, to nearest, ties to even.
#include <algorithm>
#include <bit>
#include <cmath>

#include "verify/compare/tensor_reader.h"

namespace shardproof::compare {
namespace {

using oracle::DtypeInfo;

constexpr uint64_t kPieceElements = 8192;

/// The value of every bit pattern of a dtype of at most 2 bytes.
std::vector<float> ValueTable(const DtypeInfo& dtype) {
  std::vector<float> table(size_t{1} << (8 * dtype.bytes));
  for (size_t bits = 0; bits < table.size(); ++bits) {
    table[bits] = static_cast<float>(oracle::DecodeFloat(dtype.format, bits));
  }
  return table;
}

class CastReader : public TensorReader {
 public:
  CastReader(Reader base, const DtypeInfo& target)
      : TensorReader(target, base->shape()), base_(std::move(base)) {
    if (base_->width() <= 2) table_ = ValueTable(base_->dtype());
  }

  Status Read(uint64_t start, uint64_t count, char* out) override {
    piece_.resize(std::min(kPieceElements, count) * base_->width());
    while (count > 0) {
      const uint64_t step = std::min(kPieceElements, count);
      SP_TRY(base_->Read(start, step, piece_.data()));
      for (uint64_t i = 0; i < step; ++i) {
        oracle::StoreBits(
            Convert(oracle::LoadBits(&piece_[i * base_->width()], base_->dtype().bytes)),
            dtype().bytes, out + i * width());
      }
      start += step;
      count -= step;
      out += step * width();
    }
    return Ok();
  }

 private:
  uint64_t Convert(uint64_t bits) const {
    const DtypeInfo& from = base_->dtype();
    // The hardware's own conversions for what it has: they round once, to nearest even.
    double value = 0;
    if (!table_.empty()) {
      value = table_[bits];
    } else if (from.bytes == 4) {
      value = std::bit_cast<float>(static_cast<uint32_t>(bits));
    } else {
      value = std::bit_cast<double>(bits);
    }
    if (std::isnan(value)) return oracle::EncodeFloat(dtype().format, value);
    if (width() == 8) return std::bit_cast<uint64_t>(value);
    if (width() == 4) return std::bit_cast<uint32_t>(static_cast<float>(value));
    if (dtype().format.exponent_bits == 8 && from.bytes == 4) return Bf16OfF32(bits);
    return oracle::EncodeFloat(dtype().format, value);
  }

  /// BF16 is the upper half of F32: half of the lower half's range, less for ties to even, is
  /// added.
  static uint64_t Bf16OfF32(uint64_t bits) { return (bits + 0x7fff + (bits >> 16 & 1)) >> 16; }

  Reader base_;
  std::vector<float> table_;
  std::vector<char> piece_;
};

}  // namespace

Reader Cast(Reader base, const DtypeInfo& target) {
  return std::make_unique<CastReader>(std::move(base), target);
}

}  // namespace shardproof::compare
