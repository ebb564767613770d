// sharding.chunk_rule: shards are cut as torch.chunk does.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "verify/verdict/holders.h"
#include "verify/verdict/runs.h"
#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"

namespace shardproof::sharding::chunk_rule {
namespace {

/// The indices of a dim that are owned, ascending, none touching the next.
using Indices = std::vector<Stretch>;

/// Chunk `coordinate` of `axis_size` of the indices end to end: chunks of ceil(length / axis_size),
/// so that trailing ones are shorter or empty. An implementation of its own, from the
/// documentation.
Indices ChunkOf(const Indices& indices, uint64_t axis_size, uint64_t coordinate) {
  uint64_t length = 0;
  for (const Stretch& part : indices) length += part.end - part.begin;
  const uint64_t chunk = (length + axis_size - 1) / axis_size;
  Indices taken;
  uint64_t passed = 0;
  for (const Stretch& part : indices) {
    const uint64_t size = part.end - part.begin;
    const uint64_t from = std::max(passed, coordinate * chunk);
    const uint64_t to = std::min(passed + size, (coordinate + 1) * chunk);
    if (from < to) taken.push_back({part.begin + (from - passed), part.begin + (to - passed)});
    passed += size;
  }
  return taken;
}

/// What a strided shard gives: the dim is chunked into `pieces`, as axes further right have cut it,
/// and the coordinate gets its chunk of every piece.
Indices StridedChunkOf(const Indices& indices, uint64_t pieces, uint64_t axis_size,
                       uint64_t coordinate) {
  Indices taken;
  for (uint64_t piece = 0; piece < pieces; ++piece) {
    for (const Stretch& part : ChunkOf(ChunkOf(indices, pieces, piece), axis_size, coordinate)) {
      const bool touches = !taken.empty() && taken.back().end == part.begin;
      if (touches)
        taken.back().end = part.end;
      else
        taken.push_back(part);
    }
  }
  return taken;
}

bool IsCut(const PlacementRecord& placement) {
  return placement.kind == "shard" || placement.kind == "strided_shard";
}

/// Whether axes further right that cut the same dim, some of them or all, make so many pieces of it
/// as the strided shard on `axis` says: no other axis can have cut it before.
bool HasItsPieces(const MeshOfTensor& mesh, const TensorDescriptor& descriptor, size_t axis) {
  const PlacementRecord& strided = descriptor.placements[axis];
  std::set<int64_t> pieces = {1};
  for (size_t right = axis + 1; right < descriptor.placements.size(); ++right) {
    const PlacementRecord& placement = descriptor.placements[right];
    if (!IsCut(placement) || placement.dim != strided.dim) continue;
    for (const int64_t fewer : std::set<int64_t>(pieces))
      pieces.insert(fewer * mesh.axes[right].size);
  }
  return pieces.contains(strided.split_factor);
}

/// What is wrong with the descriptor's own figures, or empty.
std::string Malformed(const MeshOfTensor& mesh, const TensorDescriptor& descriptor) {
  if (descriptor.placements.size() != mesh.axes.size() ||
      mesh.coordinates.size() != mesh.axes.size()) {
    return fmt::format("{} placements and {} coordinates for a mesh of {} axes",
                       descriptor.placements.size(), mesh.coordinates.size(), mesh.axes.size());
  }
  for (size_t axis = 0; axis < mesh.axes.size(); ++axis) {
    if (mesh.coordinates[axis] < 0 || mesh.coordinates[axis] >= mesh.axes[axis].size) {
      return fmt::format("coordinate {} on an axis of {} ranks", mesh.coordinates[axis],
                         mesh.axes[axis].size);
    }
    const PlacementRecord& placement = descriptor.placements[axis];
    if (IsCut(placement) &&
        (placement.dim < 0 || placement.dim >= static_cast<int64_t>(descriptor.shape.size()))) {
      return fmt::format("sharded on dim {} of {} dims", placement.dim, descriptor.shape.size());
    }
    if (placement.kind == "strided_shard" && !HasItsPieces(mesh, descriptor, axis)) {
      return fmt::format(
          "a strided shard on axis {} of {} pieces of dim {}, which the axes to its right "
          "do not make",
          mesh.axes[axis].name, placement.split_factor, placement.dim);
    }
  }
  return "";
}

/// The block of the tensor that the placements give this rank: axes in order, each cutting what the
/// ones before it left.
std::vector<Indices> BoxOf(const MeshOfTensor& mesh, const TensorDescriptor& descriptor) {
  std::vector<Indices> box;
  for (const int64_t size : descriptor.shape) {
    box.emplace_back();
    if (size > 0) box.back().push_back({0, static_cast<uint64_t>(size)});
  }
  for (size_t axis = 0; axis < descriptor.placements.size(); ++axis) {
    const PlacementRecord& placement = descriptor.placements[axis];
    if (!IsCut(placement)) continue;
    Indices& indices = box[static_cast<size_t>(placement.dim)];
    const auto size = static_cast<uint64_t>(mesh.axes[axis].size);
    const auto coordinate = static_cast<uint64_t>(mesh.coordinates[axis]);
    const bool strided = placement.kind == "strided_shard";
    indices = StridedChunkOf(indices, strided ? static_cast<uint64_t>(placement.split_factor) : 1,
                             size, coordinate);
  }
  return box;
}

std::string BoxText(const std::vector<Indices>& box) {
  std::vector<std::string> dims;
  for (const Indices& indices : box) {
    std::vector<std::string> parts;
    for (const Stretch& one : indices) parts.push_back(fmt::format("[{}, {})", one.begin, one.end));
    dims.push_back(parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, " and ")));
  }
  return ListSome(dims, dims.size());
}

std::string StretchesText(const std::vector<Stretch>& stretches) {
  if (stretches.empty()) return "no elements";
  std::vector<std::string> parts;
  for (const Stretch& one : stretches) parts.push_back(fmt::format("[{}, {})", one.begin, one.end));
  return "elements " + ListSome(parts, 3);
}

void CheckTensor(const PhaseEvidence& phase, const RankEvidence& rank, const std::string& stage,
                 const std::string& name, const TensorDescriptor& descriptor,
                 Judgement& judgement) {
  const MeshOfTensor mesh = MeshOf(phase, rank, descriptor);
  const std::string malformed = Malformed(mesh, descriptor);
  judgement.Compared();
  if (!malformed.empty()) {
    judgement.Found(FindingAt(phase, stage, name, "malformed", {rank.rank}, malformed));
    return;
  }
  const std::vector<Indices> box = BoxOf(mesh, descriptor);
  const auto expected = ExpandBox(descriptor.shape, box);
  const auto seen = Expand(descriptor.owned);
  if (!expected || !seen) {
    judgement.Inconclusive(fmt::format("{} is cut into too many pieces to be judged", name));
    return;
  }
  if (*expected == *seen) return;
  Finding finding = FindingAt(
      phase, stage, name, "chunk", {rank.rank},
      fmt::format("it owns {} of {}; its placements give it {} (dims {})", StretchesText(*seen),
                  ShapeText(descriptor.shape), StretchesText(*expected), BoxText(box)),
      {.against = {Against::What::kPlacements}});
  finding.expected = StretchesText(*expected);
  finding.seen = StretchesText(*seen);
  judgement.Found(std::move(finding));
}

bool Has(const TensorDescriptor& descriptor, const std::string& kind) {
  return std::any_of(descriptor.placements.begin(), descriptor.placements.end(),
                     [&](const PlacementRecord& placement) { return placement.kind == kind; });
}

/// On every rank the owned runs of a sharded tensor are the block that its placements give its
/// mesh coordinate: Shard(d) by torch.chunk(dim d, axis size), a strided shard by torch.chunk
/// of each of the split_factor pieces, which are those that axes further right make of the dim.
void Check(const Evidence& evidence, Judgement& judgement) {
  bool other_rule = false;
  for (const PhaseEvidence* phase : LoadPhases(evidence, judgement)) {
    FinalStages(*phase, judgement);  // says which are not there
    for (const RankEvidence& rank : phase->ranks) {
      std::set<std::pair<std::string, int64_t>> judged;  // a descriptor needs judging once
      for (const StageRecord& stage : rank.stages) {
        for (const auto& [name, state] : stage.tensors) {
          const TensorDescriptor& descriptor = rank.Descriptor(state);
          const bool other = Has(descriptor, "flat_shard") || Has(descriptor, "uneven_shard");
          other_rule = other_rule || other;
          const bool sharded = Has(descriptor, "shard") || Has(descriptor, "strided_shard");
          if (!sharded || other) continue;
          if (!judged.emplace(name, state.descriptor).second) continue;
          CheckTensor(*phase, rank, stage.Key(), name, descriptor, judgement);
        }
      }
    }
  }
  judgement.Skipped(other_rule ? "the shards are not cut by this rule" : "nothing is sharded");
}

const PropertyRegistration kRegistration{{
    .id = "sharding.chunk_rule",
    .claim = "Tensors are sharded as torch.chunk does it, strided ones piece by piece: "
             "chunks have ceil size, and trailing ones are shorter or empty.",
    .reads = {{LoadingPhases(),
               {Stage::kSharded, Stage::kMaterialized, Stage::kReady, Stage::kRestored}}},
    .tolerance = "none: sets of elements",
    .source = "torch.chunk documentation; DTensor's _StridedShard; pytorch/pytorch#136228 (two "
              "chunk rules in one program), #168134 (uneven strided shards)",
    .killed_by = {"sharding.floor_plus_remainder", "sharding.ceil_on_every_rank",
                  "sharding.strided_taken_for_plain", "sharding.strided_split_ignores_padding"},
    .check = Check,
}};

}  // namespace
}  // namespace shardproof::sharding::chunk_rule
