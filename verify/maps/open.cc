// Readers of views, and where the elements of a view come from.
#include <algorithm>
#include <cstring>

#include "verify/maps/numbers.h"
#include "verify/maps/view.h"

namespace shardproof::maps {
namespace {

using ViewKind = View::Kind;

class FillReader : public TensorReader {
 public:
  explicit FillReader(const View& view) : TensorReader(*view.dtype, view.shape), fill_(view.fill) {}

  Status Read(uint64_t, uint64_t count, char* out) override {
    for (uint64_t i = 0; i < count; ++i) std::memcpy(out + i * width(), fill_.data(), width());
    return Ok();
  }

 private:
  std::string fill_;
};

class UnpackReader : public TensorReader {
 public:
  UnpackReader(Reader base, const View& view)
      : TensorReader(*view.dtype, view.shape), base_(std::move(base)) {}

  Status Read(uint64_t start, uint64_t count, char* out) override {
    constexpr float kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    std::vector<char> bytes((start + count + 1) / 2 - start / 2);
    SP_TRY(base_->Read(start / 2, bytes.size(), bytes.data()));
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t at = start + i;
      const auto byte = static_cast<uint8_t>(bytes[at / 2 - start / 2]);
      const int code = at % 2 == 0 ? byte & 15 : byte >> 4;
      const float value = code < 8 ? kValues[code] : -kValues[code - 8];
      std::memcpy(out + i * sizeof value, &value, sizeof value);
    }
    return Ok();
  }

 private:
  Reader base_;
};

/// Opens a tree from its root. What is read in small pieces in turn reads ahead.
class Opener {
 public:
  Opener(const StoredOpener& open, double unit) : open_(open), unit_(unit) {}

  Reader Open(const View& view, uint64_t window) const {
    switch (view.kind) {
      case ViewKind::kStored:
        return OpenStored(view, window);
      case ViewKind::kFill:
        return std::make_unique<FillReader>(view);
      case ViewKind::kJoin:
        return OpenJoin(view, window);
      case ViewKind::kPermute:
        return OpenPermute(view);
      case ViewKind::kReshape:
      case ViewKind::kBits:
        return As(Open(*view.parts[0], window), *view.dtype, view.shape);
      case ViewKind::kCast:
        return Cast(Open(*view.parts[0], window), *view.dtype);
      case ViewKind::kUnpackFp4:
        return std::make_unique<UnpackReader>(Open(*view.parts[0], window), view);
      case ViewKind::kArithmetic:
        return Combine(Numbers(view, 0), view.operation, Numbers(view, 1));
      case ViewKind::kScaled:
        return CombineBlocks(Numbers(view, 0), '*', Numbers(view, 1), view.block);
      case ViewKind::kMerged:
        break;
    }
    return Merge(Numbers(view, 0), Numbers(view, 1), Numbers(view, 2), view.number, unit_);
  }

 private:
  Reader Numbers(const View& view, size_t part) const {
    const View& inner = *view.parts[part];
    return ToNumbers(Open(inner, kWindowBytesMax),
                     inner.Computes() && inner.kind != ViewKind::kFill, unit_);
  }

  Reader OpenStored(const View& view, uint64_t window) const {
    const std::vector<int64_t>& whole = view.stored->shape;
    for (size_t dim = 1; dim < whole.size(); ++dim) {
      if (view.shape[dim] != whole[dim]) window = std::max(window, kWindowBytesMax);
    }
    Reader reader = open_(*view.stored, window == kNoWindow ? 0 : window);
    for (size_t dim = 0; dim < whole.size(); ++dim) {
      if (view.shape[dim] == whole[dim]) continue;
      reader = Narrow(std::move(reader), dim, view.offsets[dim], view.shape[dim]);
    }
    return reader;
  }

  Reader OpenJoin(const View& view, uint64_t window) const {
    const bool in_pieces = oracle::CheckedElements(view.shape.data(), view.dim).value_or(0) > 1;
    if (in_pieces && window != kNoWindow) {
      window = std::min<uint64_t>(kWindowBytesMax, kWindowsBytesMax / view.parts.size());
    }
    std::vector<Reader> parts;
    for (const ViewPtr& part : view.parts) parts.push_back(Open(*part, window));
    return Concatenate(std::move(parts), view.dim);
  }

  /// One swap of two dims after the other. Slabs are read ahead as they are.
  Reader OpenPermute(const View& view) const {
    Reader reader = Open(*view.parts[0], kNoWindow);
    std::vector<size_t> now(view.order.size());
    for (size_t dim = 0; dim < now.size(); ++dim) now[dim] = dim;
    for (size_t dim = 0; dim < now.size(); ++dim) {
      const auto at =
          static_cast<size_t>(std::find(now.begin(), now.end(), view.order[dim]) - now.begin());
      std::swap(now[dim], now[at]);
      reader = Transpose(std::move(reader), dim, at);
    }
    return reader;
  }

  // A slab's own strips are large enough; windows below it would be read in vain.
  static constexpr uint64_t kNoWindow = 1;

  const StoredOpener& open_;
  double unit_;
};

std::vector<int64_t> Coordinates(uint64_t element, const std::vector<int64_t>& shape) {
  std::vector<int64_t> at(shape.size());
  for (size_t dim = shape.size(); dim-- > 0;) {
    at[dim] = static_cast<int64_t>(element % static_cast<uint64_t>(shape[dim]));
    element /= static_cast<uint64_t>(shape[dim]);
  }
  return at;
}

uint64_t Index(const std::vector<int64_t>& at, const std::vector<int64_t>& shape) {
  uint64_t element = 0;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    element = element * static_cast<uint64_t>(shape[dim]) + static_cast<uint64_t>(at[dim]);
  }
  return element;
}

Place PlaceOfJoined(const View& view, std::vector<int64_t> at) {
  for (const ViewPtr& part : view.parts) {
    const int64_t size = part->shape[view.dim];
    if (at[view.dim] < size) return PlaceOf(*part, Index(at, part->shape));
    at[view.dim] -= size;
  }
  return {};
}

}  // namespace

Place PlaceOf(const View& view, uint64_t element) {
  std::vector<int64_t> at = Coordinates(element, view.shape);
  switch (view.kind) {
    case ViewKind::kStored:
      for (size_t dim = 0; dim < at.size(); ++dim) at[dim] += view.offsets[dim];
      return {view.stored, Index(at, view.stored->shape)};
    case ViewKind::kFill:
      return {};
    case ViewKind::kJoin:
      return PlaceOfJoined(view, std::move(at));
    case ViewKind::kPermute: {
      std::vector<int64_t> inner(at.size());
      for (size_t dim = 0; dim < at.size(); ++dim) inner[view.order[dim]] = at[dim];
      return PlaceOf(*view.parts[0], Index(inner, view.parts[0]->shape));
    }
    case ViewKind::kUnpackFp4:
      return PlaceOf(*view.parts[0], element / 2);
    case ViewKind::kArithmetic: {
      const Place left = PlaceOf(*view.parts[0], view.parts[0]->Elements() == 1 ? 0 : element);
      if (left.tensor != nullptr && view.parts[0]->Elements() == view.Elements()) return left;
      const Place right = PlaceOf(*view.parts[1], view.parts[1]->Elements() == 1 ? 0 : element);
      return right.tensor == nullptr ? left : right;
    }
    default:
      break;
  }
  return PlaceOf(*view.parts[0], element);
}

Reader Open(const View& view, const StoredOpener& open, double unit) {
  return Opener(open, unit).Open(view, 0);
}

}  // namespace shardproof::maps
