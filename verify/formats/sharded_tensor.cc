// A ShardedTensor as torch.save writes it, which FSDP1 makes: the local shards of one rank, each
// with its box, and the boxes of all ranks.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "verify/formats/dtensor.h"

namespace shardproof::formats {
namespace sharded_tensor {
namespace {

using Kind = PickleValue::Kind;
using Box = std::pair<std::vector<int64_t>, std::vector<int64_t>>;  ///< offsets and sizes

constexpr std::string_view kModule = "torch.distributed._shard.";

Error Wrong(const std::string& expected, const std::string& found) {
  return BadInput(fmt::format("expected {}, found {}", expected, found));
}

/// An attribute of an object of that module.
Result<const PickleValue*> Attribute(const PickleValue& object, const char* name, Kind kind) {
  const bool is_ours = object.Is(Kind::kObject) && object.text.starts_with(kModule);
  const PickleValue* found =
      is_ours && object.state != nullptr ? Slot(*object.state, name) : nullptr;
  if (found != nullptr && found->Is(kind)) return found;
  return Wrong(fmt::format("{} of a ShardedTensor's part", name),
               Describe(found == nullptr ? object : *found));
}

Result<Box> BoxOf(const PickleValue& metadata) {
  SP_ASSIGN(const PickleValue* offsets, Attribute(metadata, "shard_offsets", Kind::kList));
  SP_ASSIGN(const PickleValue* sizes, Attribute(metadata, "shard_sizes", Kind::kList));
  Box box;
  SP_ASSIGN(box.first, Sizes(*offsets, "shard_offsets"));
  SP_ASSIGN(box.second, Sizes(*sizes, "shard_sizes"));
  return box;
}

std::string BoxText(const Box& box) {
  return fmt::format("[{}]+[{}]", fmt::join(box.first, ", "), fmt::join(box.second, ", "));
}

/// A local shard, whose box must be one of those that all ranks know.
Result<ShardPart> PartOf(const TorchArchive& archive, const PickleValue& shard,
                         const std::set<Box>& known, const std::string& dtype) {
  SP_ASSIGN(const PickleValue* value, Attribute(shard, "tensor", Kind::kObject));
  SP_ASSIGN(const auto tensor, archive.AsTensor(*value));
  if (!tensor) {
    return Unsupported(fmt::format("a shard of {}, which is not known", Describe(*value)));
  }
  SP_ASSIGN(const PickleValue* metadata, Attribute(shard, "metadata", Kind::kObject));
  SP_ASSIGN(const Box box, BoxOf(*metadata));
  if (tensor->dtype != dtype || tensor->shape != box.second) {
    return Wrong(fmt::format("a shard {} {}", dtype, BoxText(box)),
                 fmt::format("{} [{}]", tensor->dtype, fmt::join(tensor->shape, ", ")));
  }
  if (!known.contains(box)) {
    return Wrong("a shard that the ShardedTensor's metadata lists", BoxText(box));
  }
  return ShardPart{*tensor, {{box.first, box.second, std::vector<int64_t>(box.first.size())}}};
}

/// \pre the value is of a call that makes a ShardedTensor.
Result<SavedShard> ShardOf(const TorchArchive& archive, const PickleValue& value) {
  // (class, dtype, size, strides, ...) and the state (local shards, metadata, ...)
  const PickleValue& arguments = *value.items[2];
  const PickleValue& state = *value.items[3];
  const bool fits = arguments.items.size() >= 3 && arguments.items[1]->Is(Kind::kName) &&
                    state.Is(Kind::kTuple) && state.items.size() >= 2 &&
                    state.items[0]->Is(Kind::kList);
  if (!fits) return Wrong("a ShardedTensor with size, shards and metadata", Describe(state));
  SavedShard shard;
  shard.dtype = DtypeOfName(arguments.items[1]->text);
  if (oracle::FindDtype(shard.dtype) == nullptr) {
    return Unsupported(
        fmt::format("a ShardedTensor of {}, which is not known", Describe(*arguments.items[1])));
  }
  SP_ASSIGN(shard.shape, Sizes(*arguments.items[2], "a ShardedTensor's size"));
  if (!oracle::CheckedElements(shard.shape.data(), shard.shape.size())) {
    return Wrong("a size of less than 2^63 elements", "more");
  }
  SP_ASSIGN(const PickleValue* listed, Attribute(*state.items[1], "shards_metadata", Kind::kList));
  std::set<Box> known;
  for (const PickleValue* metadata : listed->items) {
    SP_ASSIGN(Box box, BoxOf(*metadata));
    known.insert(std::move(box));
  }
  for (const PickleValue* local : state.items[0]->items) {
    SP_ASSIGN(ShardPart part, PartOf(archive, *local, known, shard.dtype));
    shard.parts.push_back(std::move(part));
  }
  return shard;
}

}  // namespace
}  // namespace sharded_tensor

Result<std::optional<SavedShard>> AsShardedTensor(const TorchArchive& archive,
                                                  const PickleValue& value) {
  constexpr std::string_view kClass = "torch.distributed._shard.sharded_tensor.api.ShardedTensor";
  if (!IsFromType(value) || value.items[1]->text != kClass) return std::optional<SavedShard>();
  SP_ASSIGN(SavedShard shard, sharded_tensor::ShardOf(archive, value));
  return std::optional<SavedShard>(std::move(shard));
}

}  // namespace shardproof::formats
