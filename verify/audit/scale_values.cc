#include "verify/audit/scale_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "verify/maps/tensor_reader.h"
#include "verify/oracle/dtype.h"

namespace shardproof {
namespace {

using formats::StoredCheckpoint;
using oracle::NumberKind;

constexpr uint64_t kPieceElements = 64u << 10;
constexpr size_t kZerosLookedAtMax = 64;  // of a tensor: their codes are read for each

maps::Reader Open(const StoredCheckpoint& checkpoint, const formats::StoredTensor& tensor) {
  return maps::ReadStored(checkpoint, tensor, maps::kWindowBytesMax);
}

/// The value of a scale; no value where the dtype has none.
std::optional<double> ValueOf(const oracle::DtypeInfo& dtype, bool is_exponent, const char* data) {
  const uint64_t bits = oracle::LoadBits(data, dtype.bytes);
  if (is_exponent || dtype.kind == NumberKind::kScale)
    return oracle::DecodeScale(static_cast<uint8_t>(bits));
  if (dtype.kind == NumberKind::kFloat) return oracle::DecodeFloat(dtype.format, bits);
  return {};
}

/// Whether a code is nonzero in the block of the scale with this index.
class Codes {
 public:
  Codes(const StoredCheckpoint& checkpoint, const ScaledCodes& unit)
      : unit_(unit), reader_(Open(checkpoint, unit.codes)) {}

  bool AreZero(uint64_t scale) {
    const Shape& codes = unit_.codes.shape;
    if (!unit_.grid || codes.size() < 2 || reader_->width() != 1) return true;
    if (reader_->elements() == 0) return true;
    const auto bytes = static_cast<uint64_t>(codes.back());
    const auto rows = static_cast<uint64_t>(codes[codes.size() - 2]);
    const uint64_t across = BlockSide(unit_.grid->columns / unit_.grid->per_byte, bytes);
    const uint64_t down = BlockSide(unit_.grid->rows, rows);
    const uint64_t blocks_across = (bytes + across - 1) / across;
    const uint64_t blocks_down = (rows + down - 1) / down;
    const uint64_t block = scale % (blocks_across * blocks_down);
    const uint64_t matrix = scale / (blocks_across * blocks_down);
    const uint64_t column = block % blocks_across * across;
    const uint64_t first = block / blocks_across * down;
    for (uint64_t row = first; row < std::min(first + down, rows); ++row) {
      const uint64_t start = (matrix * rows + row) * bytes + column;
      const uint64_t count = std::min(across, bytes - column);
      if (start + count > reader_->elements() || !AreZero(start, count)) return false;
    }
    return true;
  }

 private:
  static uint64_t BlockSide(int64_t side, uint64_t whole) {
    return side < 1 ? std::max<uint64_t>(whole, 1) : static_cast<uint64_t>(side);
  }

  bool AreZero(uint64_t start, uint64_t count) {
    buffer_.resize(count);
    if (!reader_->Read(start, count, buffer_.data()).ok()) return true;  // damage of its own
    // A code is zero with either sign: of floats the highest bit of a byte, or of each half.
    const unsigned zero = unit_.grid->per_byte == 2                     ? 0x77
                          : reader_->dtype().kind == NumberKind::kFloat ? 0x7f
                                                                        : 0xff;
    return std::all_of(buffer_.begin(), buffer_.end(), [zero](char code) {
      return (static_cast<unsigned char>(code) & zero) == 0;
    });
  }

  const ScaledCodes& unit_;
  maps::Reader reader_;
  std::vector<char> buffer_;
};

}  // namespace

std::string WrongScale(const StoredCheckpoint& checkpoint, const ScaledCodes& unit) {
  const maps::Reader reader = Open(checkpoint, unit.scale);
  std::vector<char> buffer(kPieceElements * reader->width());
  std::optional<Codes> codes;
  const bool may_round = MayRoundToZero(reader->dtype());
  size_t zeros = 0;
  bool is_any_positive = false;
  std::string wrong_zero;
  for (uint64_t start = 0; start < reader->elements(); start += kPieceElements) {
    const uint64_t count = std::min(kPieceElements, reader->elements() - start);
    if (!reader->Read(start, count, buffer.data()).ok()) return "";
    for (uint64_t i = 0; i < count; ++i) {
      const auto value =
          ValueOf(reader->dtype(), unit.is_exponent, buffer.data() + i * reader->width());
      if (!value) return "";
      if (*value > 0 && std::isfinite(*value)) {
        is_any_positive = true;
        continue;
      }
      if (*value == 0) {
        if (!wrong_zero.empty() || ++zeros > kZerosLookedAtMax) continue;
        if (!codes) codes.emplace(checkpoint, unit);
        if (codes->AreZero(start + i)) continue;
        wrong_zero = fmt::format(
            "expected scales that are not zero where codes are not, element {} is 0", start + i);
        if (!may_round) return wrong_zero;
        continue;
      }
      return fmt::format("expected positive scales, element {} is {}", start + i, *value);
    }
  }
  return is_any_positive ? "" : wrong_zero;
}

}  // namespace shardproof
