#include "verify/quantised/blocks.h"

#include <algorithm>

namespace shardproof::quantised {
namespace {

/// Elements in another order or of other rows, one by one.
class PickReader : public maps::TensorReader {
 public:
  PickReader(Reader base, Shape shape, Pick pick)
      : TensorReader(base->dtype(), std::move(shape)),
        base_(std::move(base)),
        pick_(std::move(pick)) {}

  Status Read(uint64_t start, uint64_t count, char* out) override {
    for (uint64_t i = 0; i < count;) {
      const uint64_t first = pick_(start + i);
      uint64_t run = 1;
      while (i + run < count && pick_(start + i + run) == first + run) ++run;
      SP_TRY(base_->Read(first, run, out + i * width()));
      i += run;
    }
    return Ok();
  }

 private:
  Reader base_;
  Pick pick_;
};

}  // namespace

Reader Picked(Reader base, Shape shape, Pick pick) {
  return std::make_unique<PickReader>(std::move(base), std::move(shape), std::move(pick));
}

Reader Constant(double value) {
  static const maps::StoredOpener kNone;
  return maps::Open(*maps::Constant(value), kNone, 0);
}

Blocks BlocksOf(const Unit& unit, const Shape& shape, const Shape& scales) {
  Blocks out{Shape(shape.size(), 1), Shape(shape.size(), 1)};
  const size_t row = shape.size() - 2;
  int64_t height = 1;
  int64_t width = shape.back();
  const QuantisationScheme& scheme = unit.scheme;
  if (scheme.dialect == Dialect::kTorchAo && scales.size() == shape.size()) {
    height = scales[row] > 0 ? std::max<int64_t>(shape[row] / scales[row], 1) : 1;
    width = scales.back() > 0 ? std::max<int64_t>(shape.back() / scales.back(), 1) : 1;
  } else if (const auto grid = GridOf(scheme)) {
    height = grid->rows > 0 ? grid->rows : shape[row];
    width = grid->columns > 0 ? grid->columns : shape.back();
  } else if (scheme.strategy == "tensor") {
    height = shape[row];
  } else if (scheme.strategy == "group" && scheme.group > 0) {
    width = scheme.group;
  }
  if (scheme.dialect == Dialect::kMxfp4 || scheme.dialect == Dialect::kPackedMx) {
    height = 1;
    width = 32;
  }
  out.block[row] = std::max<int64_t>(height, 1);  // of an empty weight either may be 0
  out.block.back() = std::max<int64_t>(width, 1);
  for (size_t dim = 0; dim < shape.size(); ++dim)
    out.scales[dim] = CeilDiv(shape[dim], out.block[dim]);
  return out;
}

}  // namespace shardproof::quantised
