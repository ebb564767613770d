#include "verify/verdict/image.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace shardproof {
namespace {

bool IsShard(const PlacementRecord& placement) { return placement.kind.ends_with("shard"); }

/// How a tensor lies, so that ranks which disagree about that are not added up.
std::string LayoutKey(const TensorDescriptor& descriptor) {
  std::string key;
  for (const PlacementRecord& placement : descriptor.placements) {
    key += fmt::format("{}:{}:{};", placement.kind, IsShard(placement) ? placement.dim : 0,
                       placement.split_factor);
  }
  return fmt::format("{}[{}] {}", key, fmt::join(descriptor.shape, ","), descriptor.dtype);
}

/// Equal for the ranks that hold parts of one replica: those that are said to, or that have the
/// same coordinates on the axes that do not cut the tensor.
std::string GroupKey(const RankEvidence& rank, const TensorDescriptor& descriptor) {
  if (const GroupsRecord* groups = rank.Groups(descriptor)) {
    return fmt::format("{} of {}", fmt::join(groups->whole, ","), LayoutKey(descriptor));
  }
  const bool is_cut =
      std::any_of(descriptor.placements.begin(), descriptor.placements.end(), IsShard);
  if (!is_cut) return fmt::format("rank {}", rank.rank);
  std::string key;
  for (size_t axis = 0; axis < descriptor.placements.size(); ++axis) {
    if (!IsShard(descriptor.placements[axis]) && axis < rank.coordinates.size()) {
      key += fmt::format("{}@{};", axis, rank.coordinates[axis]);
    }
  }
  return key + LayoutKey(descriptor);
}

void Add(Image& image, const RankEvidence& rank, const TensorDescriptor& descriptor,
         const TensorState& state) {
  image.dtype = descriptor.dtype;
  image.shape = descriptor.shape;
  image.digest += state.digest;
  image.coverage += state.coverage;
  image.nan_count += state.nan_count;
  image.inf_count += state.inf_count;
  if (state.first_nonfinite) {
    image.first_nonfinite =
        std::min(image.first_nonfinite.value_or(*state.first_nonfinite), *state.first_nonfinite);
  }
  image.defined = image.defined && state.content == Content::kDefined && !state.is_meta;
  if (image.unreadable.empty()) image.unreadable = state.unreadable;
  for (const PlacementRecord& placement : descriptor.placements) {
    image.partial = image.partial || placement.kind == "partial";
  }
  image.parts.push_back({&rank, &state, &descriptor, nullptr});
}

}  // namespace

bool AreEqual(const Image& a, const Image& b) {
  return a.digest == b.digest && a.coverage == b.coverage && a.dtype == b.dtype &&
         a.shape == b.shape;
}

std::string WhyItVaries(const std::vector<Image>& images) {
  std::string why;
  for (const Image& image : images) {
    for (const Part& part : image.parts) {
      if (part.descriptor == nullptr || part.descriptor->varies.empty()) return "";
      if (why.empty() || why == "rewritten") why = part.descriptor->varies;
    }
  }
  return why;
}

bool IsScratch(const std::vector<Image>& images) {
  if (WhyItVaries(images) != "rewritten") return false;
  return std::all_of(images.begin(), images.end(), [](const Image& image) {
    return std::none_of(image.parts.begin(), image.parts.end(),
                        [](const Part& part) { return part.descriptor->persistent; });
  });
}

std::vector<int64_t> Image::Ranks() const {
  std::vector<int64_t> ranks;
  for (const Part& part : parts) {
    if (part.rank != nullptr) ranks.push_back(part.rank->rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

Image ImageOf(const FileTensor& tensor) {
  Image image;
  image.dtype = tensor.dtype;
  image.shape = tensor.shape;
  image.digest = tensor.digest;
  image.coverage = tensor.coverage;
  image.nan_count = tensor.nan_count;
  image.inf_count = tensor.inf_count;
  image.first_nonfinite = tensor.first_nonfinite;
  image.parts.push_back({nullptr, nullptr, nullptr, &tensor});
  return image;
}

std::vector<Image> ImagesOf(const PhaseEvidence& phase, const StageKey& stage,
                            const std::string& tensor) {
  std::vector<Image> images;
  std::map<std::string, size_t> index_of;
  for (const RankEvidence& rank : phase.ranks) {
    const StageRecord* record = rank.Stage(stage);
    if (record == nullptr) continue;
    const auto state = record->tensors.find(tensor);
    if (state == record->tensors.end()) continue;
    const TensorDescriptor& descriptor = rank.Descriptor(state->second);
    const auto [place, is_new] = index_of.emplace(GroupKey(rank, descriptor), images.size());
    if (is_new) images.emplace_back();
    Add(images[place->second], rank, descriptor, state->second);
  }
  return images;
}

std::vector<Image> PartsOf(const Image& image) {
  std::vector<Image> parts;
  for (const Part& part : image.parts) {
    Add(parts.emplace_back(), *part.rank, *part.descriptor, *part.state);
  }
  return parts;
}

size_t CountOfFirst(const std::vector<Image>& images) {
  return static_cast<size_t>(std::count_if(
      images.begin(), images.end(), [&](const Image& each) { return AreEqual(each, images[0]); }));
}

std::vector<Image> CommonestFirst(std::vector<Image> images) {
  size_t most = 0;
  size_t commonest = 0;
  for (size_t at = 0; at < images.size() && 2 * most <= images.size(); ++at) {
    const auto count = static_cast<size_t>(
        std::count_if(images.begin() + static_cast<int64_t>(at), images.end(),
                      [&](const Image& each) { return AreEqual(each, images[at]); }));
    if (count > most) {
      most = count;
      commonest = at;
    }
  }
  const auto first = images.begin() + static_cast<int64_t>(commonest);
  std::rotate(images.begin(), first, first + (images.empty() ? 0 : 1));
  return images;
}

KnownBytes::KnownBytes(const Image& image) {
  std::vector<const ByteRange*> ranges;
  for (const Part& part : image.parts) {
    for (const ByteRange& range : part.bytes()) ranges.push_back(&range);
  }
  std::stable_sort(ranges.begin(), ranges.end(),
                   [](const ByteRange* a, const ByteRange* b) { return a->start < b->start; });
  uint64_t start = 0;
  std::string joined;
  for (const ByteRange* range : ranges) {
    if (!joined.empty() && range->start <= start + joined.size()) {
      // What overlaps is known already.
      const uint64_t known = start + joined.size() - range->start;
      if (known < range->bytes.size()) joined += range->bytes.substr(known);
      continue;
    }
    if (!joined.empty()) stretches_.emplace(start, std::move(joined));
    start = range->start;
    joined = range->bytes;
  }
  if (!joined.empty()) stretches_.emplace(start, std::move(joined));
}

std::optional<std::string_view> KnownBytes::Read(uint64_t start, uint64_t length) const {
  auto after = stretches_.upper_bound(start);
  if (after == stretches_.begin()) return std::nullopt;
  const auto& [begin, bytes] = *--after;
  if (start - begin > bytes.size() || bytes.size() - (start - begin) < length) return std::nullopt;
  return std::string_view(bytes).substr(start - begin, length);
}

}  // namespace shardproof
