#include "verify/quantised/codes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "verify/oracle/dtype.h"

namespace shardproof::quantised {
namespace {

constexpr uint64_t kCodesHeld = 4096;

/// Codes one by one, out of what is packed.
class CodeReader : public maps::TensorReader {
 public:
  CodeReader(Reader packed, Packing packing, Grid grid, std::vector<int64_t> shape)
      : TensorReader(maps::kNumber, std::move(shape)),
        packed_(std::move(packed)),
        packing_(packing),
        grid_(std::move(grid)),
        bits_(static_cast<uint64_t>(BitsOf(grid_))),
        columns_(this->shape().empty() ? 1 : static_cast<uint64_t>(this->shape().back())),
        packed_columns_(packed_->shape().empty() ? 1
                                                 : static_cast<uint64_t>(packed_->shape().back())) {
  }

  Status Read(uint64_t start, uint64_t count, char* out) override {
    while (count > 0) {
      const uint64_t step =
          std::min({count, kCodesHeld, IsFlat() ? count : columns_ - start % columns_});
      codes_.resize(step);
      SP_TRY(Load(start, step));
      for (uint64_t i = 0; i < step; ++i, out += sizeof(Number)) {
        std::memcpy(out, &grid_[codes_[i]], sizeof(Number));
      }
      start += step;
      count -= step;
    }
    return Ok();
  }

 private:
  /// Whether codes of one row follow those of the row before without a gap.
  bool IsFlat() const {
    return packing_ == Packing::kBytes || packing_ == Packing::kLowFirst ||
           packing_ == Packing::kHighFirst;
  }

  Status Load(uint64_t start, uint64_t count) {
    switch (packing_) {
      case Packing::kBytes:
        SP_TRY(Fetch(start, count));
        for (uint64_t i = 0; i < count; ++i) codes_[i] = static_cast<uint8_t>(bytes_[i]);
        return Ok();
      case Packing::kLowFirst:
      case Packing::kHighFirst:
        return LoadHalves(start, count);
      case Packing::kBitsDownColumns:
        return LoadDown(start / columns_, start % columns_, count);
      default:
        return LoadRow(start / columns_, start % columns_, count);
    }
  }

  /// Elements of what is packed, as bytes.
  Status Fetch(uint64_t start, uint64_t count) {
    bytes_.resize(count * packed_->width());
    return packed_->Read(start, count, bytes_.data());
  }

  Status LoadHalves(uint64_t start, uint64_t count) {
    const uint64_t width = packed_->width();  // codes may lie in elements of several bytes
    const uint64_t first = start / 2 / width;
    SP_TRY(Fetch(first, (start + count - 1) / 2 / width - first + 1));
    const bool low_first = packing_ == Packing::kLowFirst;
    for (uint64_t i = 0; i < count; ++i) {
      const auto byte = static_cast<uint8_t>(bytes_[(start + i) / 2 - first * width]);
      codes_[i] = ((start + i) % 2 == 0) == low_first ? byte & 15 : byte >> 4;
    }
    return Ok();
  }

  /// Where a code of a row begins, in bits from the row's first.
  uint64_t BitOf(uint64_t column) const {
    constexpr uint64_t kPlaces[] = {0, 4, 1, 5, 2, 6, 3, 7};  // of AWQ
    if (packing_ == Packing::kInterleaved) return column / 8 * 32 + kPlaces[column % 8] * 4;
    if (packing_ == Packing::kWords)
      return column / (32 / bits_) * 32 + column % (32 / bits_) * bits_;
    return column * bits_;
  }

  Status LoadRow(uint64_t row, uint64_t column, uint64_t count) {
    const uint64_t unit = 8 * packed_->width();
    const uint64_t first = packing_ == Packing::kInterleaved ? column / 8 : BitOf(column) / unit;
    uint64_t last = (BitOf(column + count - 1) + bits_ - 1) / unit;
    if (packing_ == Packing::kInterleaved) last = (column + count - 1) / 8;
    SP_TRY(Fetch(row * packed_columns_ + first, last - first + 1));
    bytes_.resize(bytes_.size() + 1, '\0');
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t bit = BitOf(column + i) - first * unit;
      const uint64_t two = oracle::LoadBits(&bytes_[bit / 8], 2);
      codes_[i] = two >> bit % 8 & ((uint64_t{1} << bits_) - 1);
    }
    return Ok();
  }

  Status LoadDown(uint64_t row, uint64_t column, uint64_t count) {
    const uint64_t first = row * bits_ / 32;
    const uint64_t shift = row * bits_ % 32;
    SP_TRY(Fetch(first * packed_columns_ + column, count));
    for (uint64_t i = 0; i < count; ++i) codes_[i] = oracle::LoadBits(&bytes_[4 * i], 4) >> shift;
    if (shift + bits_ > 32) {
      SP_TRY(Fetch((first + 1) * packed_columns_ + column, count));
      for (uint64_t i = 0; i < count; ++i)
        codes_[i] |= oracle::LoadBits(&bytes_[4 * i], 4) << (32 - shift);
    }
    for (uint64_t& code : codes_) code &= (uint64_t{1} << bits_) - 1;
    return Ok();
  }

  Reader packed_;
  Packing packing_;
  Grid grid_;
  uint64_t bits_;
  uint64_t columns_;
  uint64_t packed_columns_;
  std::vector<uint64_t> codes_;
  std::vector<char> bytes_;
};

double Fp4(uint64_t code) {
  constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return code < 8 ? kValues[code] : -kValues[code - 8];
}

/// Three bits of mantissa, two of exponent, neither infinity nor NaN.
double Fp6E2m3(uint64_t code) {
  const auto mantissa = static_cast<double>(code & 7);
  const auto exponent = static_cast<int>(code >> 3 & 3);
  const double value = exponent == 0 ? mantissa / 8 : std::ldexp(1 + mantissa / 8, exponent - 1);
  return code & 32 ? -value : value;
}

}  // namespace

Grid GridOfValues(const std::vector<double>& values, double beyond) {
  std::vector<double> sorted;
  for (const double value : values) {
    if (std::isfinite(value)) sorted.push_back(value);
  }
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  Grid grid;
  for (const double value : values) {
    const auto at = std::lower_bound(sorted.begin(), sorted.end(), value);
    double bound = 0;
    if (std::isfinite(value)) {
      const double below = at == sorted.begin() ? 0 : (value - *(at - 1)) / 2;
      const double above = at + 1 == sorted.end() ? 0 : (*(at + 1) - value) / 2;
      bound = std::max({below, above, below > 0 && above > 0 ? 0 : beyond});
    }
    grid.push_back({value, bound});
  }
  return grid;
}

Grid GridOfFloats(const char* dtype, bool powers) {
  const std::string_view name = dtype;
  std::vector<double> values;
  if (name == "F4") {
    for (uint64_t code = 0; code < 16; ++code) values.push_back(Fp4(code));
  } else if (name == "F6_E2M3") {
    for (uint64_t code = 0; code < 64; ++code) values.push_back(Fp6E2m3(code));
  } else {
    const oracle::DtypeInfo& info = *oracle::FindDtype(name);
    for (uint64_t code = 0; code < 256; ++code)
      values.push_back(oracle::DecodeFloat(info.format, code));
  }
  double largest = 0;
  for (const double value : values) {
    if (std::isfinite(value)) largest = std::max(largest, value);
  }
  const double next_power = std::ldexp(1.0, std::ilogb(largest) + 1);
  return GridOfValues(values, powers ? next_power - largest : 0);
}

Grid GridOfIntegers(int bits, bool is_signed, int offset, int width) {
  const int count = 1 << (width > 0 ? width : bits);
  const int low = is_signed ? -(1 << (bits - 1)) : -offset;
  const int high = low + (1 << bits) - 1;
  Grid grid;
  for (int code = 0; code < count; ++code) {
    const int value = (is_signed && code >= count / 2 ? code - count : code) - offset;
    grid.push_back({static_cast<double>(value), value == low || value == high ? 1 : 0.5});
  }
  return grid;
}

Grid Exact(Grid grid) {
  for (Number& number : grid) number.bound = 0;
  return grid;
}

int BitsOf(const Grid& grid) {
  int bits = 0;
  while (size_t{1} << bits < grid.size()) ++bits;
  return bits;
}

Reader ReadCodes(Reader packed, Packing packing, Grid grid, std::vector<int64_t> shape) {
  return std::make_unique<CodeReader>(std::move(packed), packing, std::move(grid),
                                      std::move(shape));
}

}  // namespace shardproof::quantised
