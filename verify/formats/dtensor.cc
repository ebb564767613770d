#include "verify/formats/dtensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace shardproof::formats {
namespace {

using Kind = PickleValue::Kind;

constexpr size_t kPiecesMax = 4096;  // that one shard may lie in
constexpr int64_t kSplitFactorMax = 16 * kPiecesMax;
constexpr size_t kAttributesMax = 256;  // torch's own objects have some dozens

struct Interval {
  int64_t start = 0;
  int64_t length = 0;
};
using Intervals = std::vector<Interval>;

Error Wrong(const std::string& expected, const std::string& found) {
  return BadInput(fmt::format("expected {}, found {}", expected, found));
}

int64_t LengthOf(const Intervals& intervals) {
  int64_t length = 0;
  for (const Interval& interval : intervals) length += interval.length;
  return length;
}

/// Adds an interval behind the others, to the last one if they touch.
void Append(const Interval& interval, Intervals& intervals) {
  if (!intervals.empty() && intervals.back().start + intervals.back().length == interval.start) {
    intervals.back().length += interval.length;
  } else {
    intervals.push_back(interval);
  }
}

/// Elements [start, start + length) of those that the intervals have, in their order.
Intervals Narrow(const Intervals& intervals, int64_t start, int64_t length) {
  Intervals found;
  int64_t at = 0;
  for (const Interval& interval : intervals) {
    const int64_t begin = std::max(start, at);
    const int64_t end = std::min(start + length, at + interval.length);
    if (begin < end) found.push_back({interval.start + begin - at, end - begin});
    at += interval.length;
  }
  return found;
}

/// The `index`-th of `count` parts as torch.chunk cuts them: all of one size but the last ones.
Intervals ChunkOf(const Intervals& intervals, int64_t index, int64_t count) {
  const int64_t all = LengthOf(intervals);
  const int64_t size = all / count + (all % count != 0 ? 1 : 0);
  const int64_t start = size == 0 || index > all / size ? all : size * index;
  return Narrow(intervals, start, std::min(size, all - start));
}

struct Placement {
  bool is_shard = false;
  int64_t dim = 0;
  int64_t split_factor = 1;  ///< of _StridedShard; 1: a plain Shard
};

Result<int64_t> Integer(const PickleValue* value, const char* what) {
  if (value == nullptr || !value->Is(Kind::kInteger) || value->is_big) {
    return Wrong(fmt::format("an integer as {}", what),
                 value == nullptr ? "none" : Describe(*value));
  }
  return value->integer;
}

/// A name without its module.
std::string_view LastPart(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

/// A value of a dict, or of an object's state. Null of one with too many, which every tensor of a
/// file may share: each look into it would take long.
const PickleValue* StateAt(const PickleValue& object, const char* name) {
  const PickleValue* dict = object.Is(Kind::kDict) ? &object : object.state;
  const bool is_few = dict != nullptr && dict->items.size() <= 2 * kAttributesMax;
  return is_few ? object.At(name) : nullptr;
}

/// An attribute: of the state, or of the arguments in their order.
const PickleValue* Attribute(const PickleValue& object, const char* name, size_t argument) {
  if (const PickleValue* found = StateAt(object, name); found != nullptr) return found;
  return argument < object.items.size() ? object.items[argument] : nullptr;
}

Result<Placement> PlacementOf(const PickleValue& value, size_t dims) {
  const std::string_view name = value.Is(Kind::kObject) ? LastPart(value.text) : "";
  if (name == "Replicate") return Placement{};
  if (name != "Shard" && name != "_StridedShard") {
    return Unsupported(fmt::format("a placement {}, which is not known", Describe(value)));
  }
  Placement placement{.is_shard = true};
  SP_ASSIGN(placement.dim, Integer(Attribute(value, "dim", 0), "the dim of a Shard"));
  if (placement.dim < 0) placement.dim += static_cast<int64_t>(dims);
  if (placement.dim < 0 || placement.dim >= static_cast<int64_t>(dims)) {
    return Wrong(fmt::format("a Shard of one of {} dims", dims), fmt::format("{}", placement.dim));
  }
  if (name == "Shard") return placement;
  SP_ASSIGN(placement.split_factor,
            Integer(Attribute(value, "split_factor", 1), "the split_factor of a _StridedShard"));
  if (placement.split_factor < 1 || placement.split_factor > kSplitFactorMax) {
    return Wrong(fmt::format("a split_factor of 1 to {}", kSplitFactorMax),
                 fmt::format("{}", placement.split_factor));
  }
  return placement;
}

/// The numbers of a mesh layout's `shape`, which may nest.
Status AddNumbers(const PickleValue& value, std::vector<int64_t>& numbers, int depth = 0) {
  if (value.Is(Kind::kInteger) && !value.is_big && value.integer > 0) {
    numbers.push_back(value.integer);
    return Ok();
  }
  const bool is_list = value.Is(Kind::kTuple) || value.Is(Kind::kList);
  if (!is_list || depth > 4) return Wrong("the sizes of a mesh", Describe(value));
  for (const PickleValue* item : value.items) SP_TRY(AddNumbers(*item, numbers, depth + 1));
  return Ok();
}

/// The ranks along one dim of a mesh, whose sizes may be several.
Result<int64_t> ProductOf(const PickleValue& shape) {
  std::vector<int64_t> numbers;
  SP_TRY(AddNumbers(shape, numbers));
  int64_t size = 1;
  for (const int64_t number : numbers) {
    if (__builtin_mul_overflow(size, number, &size)) return Wrong("the size of a mesh", "more");
  }
  return size;
}

/// The number of ranks along each dim of the mesh. torch 2.15 has `axes` in a `_layout`, releases
/// before it a `shape` there, and those before 2.9 the tensor `mesh`.
Result<std::vector<int64_t>> MeshSizes(const TorchArchive& archive, const PickleValue& mesh) {
  std::vector<int64_t> sizes;
  const PickleValue* layout = StateAt(mesh, "_layout");
  if (layout == nullptr) {
    const PickleValue* ranks = StateAt(mesh, "mesh");
    if (ranks == nullptr) return Wrong("a DeviceMesh with its ranks", Describe(mesh));
    SP_ASSIGN(const auto tensor, archive.AsTensor(*ranks));
    if (!tensor) return Wrong("a DeviceMesh with a tensor of its ranks", Describe(*ranks));
    return tensor->shape;
  }
  std::vector<const PickleValue*> dims;
  if (const PickleValue* axes = StateAt(*layout, "axes"); axes != nullptr) {
    for (const PickleValue* axis : axes->items) {
      dims.push_back(Attribute(*axis, "shape", 0));
      if (dims.back() == nullptr) return Wrong("a shape of a mesh's dim", Describe(*axis));
    }
  } else {
    const PickleValue* shape = Attribute(*layout, "shape", 0);
    if (shape == nullptr) return Wrong("a mesh's layout", Describe(*layout));
    dims = shape->Is(Kind::kInteger) ? std::vector{shape} : shape->items;
  }
  for (const PickleValue* dim : dims) {
    SP_ASSIGN(const int64_t size, ProductOf(*dim));
    sizes.push_back(size);
  }
  return sizes;
}

/// Every way to pick one interval of each dim.
Result<std::vector<ShardBox>> BoxesOf(const std::vector<Intervals>& dims) {
  std::vector<ShardBox> boxes = {{}};
  for (const Intervals& dim : dims) {
    std::vector<ShardBox> longer;
    if (boxes.size() * dim.size() > kPiecesMax) {
      return Unsupported(fmt::format("a shard in more than {} pieces", kPiecesMax));
    }
    for (const ShardBox& box : boxes) {
      int64_t local = 0;
      for (const Interval& interval : dim) {
        ShardBox& added = longer.emplace_back(box);
        added.offsets.push_back(interval.start);
        added.sizes.push_back(interval.length);
        added.local.push_back(local);
        local += interval.length;
      }
    }
    boxes = std::move(longer);
  }
  return boxes;
}

struct Spec {
  MeshPlace place;
  std::vector<Placement> placements;
};

Result<Spec> SpecOf(const TorchArchive& archive, const PickleValue& state, size_t dims) {
  const PickleValue* spec = Slot(state, "_spec");
  const PickleValue* mesh = spec == nullptr ? nullptr : Attribute(*spec, "mesh", 0);
  const PickleValue* placements = spec == nullptr ? nullptr : Attribute(*spec, "placements", 1);
  if (mesh == nullptr || placements == nullptr) {
    return Wrong("a DTensor with mesh and placements", Describe(state));
  }
  Spec found;
  SP_ASSIGN(found.place.sizes, MeshSizes(archive, *mesh));
  const PickleValue* coordinate = StateAt(*mesh, "_coordinate_on_dim");
  if (coordinate == nullptr || coordinate->Is(Kind::kNone)) {
    return Wrong("the coordinate of the rank that saved it", "none");
  }
  SP_ASSIGN(found.place.coordinate, Sizes(*coordinate, "coordinate"));
  for (const PickleValue* item : placements->items) {
    SP_ASSIGN(const Placement placement, PlacementOf(*item, dims));
    found.placements.push_back(placement);
  }
  const bool fits = found.place.sizes.size() == found.place.coordinate.size() &&
                    found.place.sizes.size() == found.placements.size();
  for (size_t i = 0; fits && i < found.place.sizes.size(); ++i) {
    if (found.place.coordinate[i] < found.place.sizes[i]) continue;
    return Wrong(
        fmt::format("a coordinate within the mesh [{}]", fmt::join(found.place.sizes, ", ")),
        fmt::format("[{}]", fmt::join(found.place.coordinate, ", ")));
  }
  if (fits) return found;
  return Wrong("a coordinate and a placement for each dim of the mesh",
               fmt::format("{} dims, {} coordinates, {} placements", found.place.sizes.size(),
                           found.place.coordinate.size(), found.placements.size()));
}

/// What the placements give the rank of each dim of the tensor, one mesh dim after the other.
Result<std::vector<Intervals>> HeldOf(const Spec& spec, const std::vector<int64_t>& shape) {
  std::vector<Intervals> held;
  for (const int64_t size : shape) held.push_back({{0, size}});
  for (size_t i = 0; i < spec.placements.size(); ++i) {
    const Placement& placement = spec.placements[i];
    if (!placement.is_shard) continue;
    Intervals& dim = held[static_cast<size_t>(placement.dim)];
    const auto split_max = kSplitFactorMax / std::max<int64_t>(static_cast<int64_t>(dim.size()), 1);
    if (placement.split_factor > split_max) {
      return Unsupported(fmt::format("a _StridedShard of a dim in {} pieces in {} parts",
                                     dim.size(), placement.split_factor));
    }
    Intervals taken;
    for (int64_t split = 0; split < placement.split_factor; ++split) {
      const Intervals part = ChunkOf(ChunkOf(dim, split, placement.split_factor),
                                     spec.place.coordinate[i], spec.place.sizes[i]);
      for (const Interval& interval : part) Append(interval, taken);
      if (taken.size() > kPiecesMax) {
        return Unsupported(fmt::format("a shard in more than {} pieces", kPiecesMax));
      }
    }
    dim = std::move(taken);
  }
  return held;
}

bool IsDTensor(const PickleValue& value) {
  return IsFromType(value) && LastPart(value.items[1]->text) == "DTensor";
}

}  // namespace

const PickleValue* Slot(const PickleValue& state, const char* name) {
  if (!state.Is(Kind::kTuple)) return StateAt(state, name);
  for (size_t i = 0; i < std::min(state.items.size(), kAttributesMax); ++i) {
    if (const PickleValue* found = StateAt(*state.items[i], name); found != nullptr) return found;
  }
  return nullptr;
}

Result<std::optional<SavedShard>> AsShard(const TorchArchive& archive, const PickleValue& value) {
  if (!IsDTensor(value)) return AsShardedTensor(archive, value);
  const PickleValue& arguments = *value.items[2];
  const PickleValue& state = *value.items[3];
  // (class, dtype, size, strides, ...)
  if (arguments.items.size() < 3) return Wrong("a DTensor with its size", Describe(arguments));
  SavedShard shard;
  SP_ASSIGN(shard.shape, Sizes(*arguments.items[2], "a DTensor's size"));
  if (!oracle::CheckedElements(shard.shape.data(), shard.shape.size())) {
    return Wrong("a size of less than 2^63 elements", "more");
  }
  const PickleValue* local = Slot(state, "_local_tensor");
  if (local == nullptr) return Wrong("a DTensor with its _local_tensor", Describe(state));
  SP_ASSIGN(const auto tensor, archive.AsTensor(*local));
  if (!tensor) {
    return Unsupported(fmt::format("a DTensor of {}, which is not known", Describe(*local)));
  }
  if (tensor->shape.size() != shard.shape.size()) {  // complex128 has a dim of its own
    return Unsupported(fmt::format("a DTensor of {} dims in a shard of {}, which is not known",
                                   shard.shape.size(), tensor->shape.size()));
  }
  SP_ASSIGN(const Spec spec, SpecOf(archive, state, shard.shape.size()));
  SP_ASSIGN(const auto held, HeldOf(spec, shard.shape));
  shard.place = spec.place;
  std::vector<int64_t> sizes;
  for (const Intervals& dim : held) sizes.push_back(LengthOf(dim));
  if (sizes != tensor->shape) {
    return Wrong(
        fmt::format("a shard of shape [{}] by mesh and placements", fmt::join(sizes, ", ")),
        fmt::format("[{}]", fmt::join(tensor->shape, ", ")));
  }
  shard.dtype = tensor->dtype;
  SP_ASSIGN(auto boxes, BoxesOf(held));
  shard.parts.push_back({*tensor, std::move(boxes)});
  return std::optional<SavedShard>(std::move(shard));
}

}  // namespace shardproof::formats
