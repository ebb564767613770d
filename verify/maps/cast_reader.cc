// A tensor's elements rounded to another float dtype, once, to nearest, ties to even.
#include <algorithm>

#include "verify/maps/tensor_reader.h"
#include "verify/oracle/cast.h"

namespace shardproof::maps {
namespace {

using oracle::DtypeInfo;

constexpr uint64_t kPieceElements = 8192;

class CastReader : public TensorReader {
 public:
  CastReader(Reader base, const DtypeInfo& target)
      : TensorReader(target, base->shape()),
        base_(std::move(base)),
        cast_(base_->dtype(), target) {}

  Status Read(uint64_t start, uint64_t count, char* out) override {
    piece_.resize(std::min(kPieceElements, count) * base_->width());
    while (count > 0) {
      const uint64_t step = std::min(kPieceElements, count);
      SP_TRY(base_->Read(start, step, piece_.data()));
      cast_.Cast(piece_.data(), step, out);
      start += step;
      count -= step;
      out += step * width();
    }
    return Ok();
  }

 private:
  Reader base_;
  oracle::ElementCast cast_;
  std::vector<char> piece_;
};

}  // namespace

Reader Cast(Reader base, const DtypeInfo& target) {
  return std::make_unique<CastReader>(std::move(base), target);
}

}  // namespace shardproof::maps
