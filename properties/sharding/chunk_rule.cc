// sharding.chunk_rule: Shard(d) cuts a dim as torch.chunk does.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "verify/verdict/runs.h"
#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"

namespace shardproof {
namespace {

/// Chunk `coordinate` of `axis_size` of a range: chunks of ceil(length / axis_size), so that
/// trailing ones are shorter or empty. An implementation of its own, from the documentation.
Stretch ChunkOf(Stretch range, uint64_t axis_size, uint64_t coordinate) {
  const uint64_t length = range.end - range.begin;
  const uint64_t chunk = (length + axis_size - 1) / axis_size;
  return {range.begin + std::min(length, coordinate * chunk),
          range.begin + std::min(length, (coordinate + 1) * chunk)};
}

/// What is wrong with the descriptor's own figures, or empty.
std::string Malformed(const PhaseEvidence& phase, const RankEvidence& rank,
                      const TensorDescriptor& descriptor) {
  if (descriptor.placements.size() != phase.mesh.size() ||
      rank.coordinates.size() != phase.mesh.size()) {
    return fmt::format("{} placements and {} coordinates for a mesh of {} axes",
                       descriptor.placements.size(), rank.coordinates.size(), phase.mesh.size());
  }
  for (size_t axis = 0; axis < phase.mesh.size(); ++axis) {
    if (rank.coordinates[axis] < 0 || rank.coordinates[axis] >= phase.mesh[axis].size) {
      return fmt::format("coordinate {} on an axis of {} ranks", rank.coordinates[axis],
                         phase.mesh[axis].size);
    }
    const PlacementRecord& placement = descriptor.placements[axis];
    if (placement.kind == "shard" &&
        (placement.dim < 0 || placement.dim >= static_cast<int64_t>(descriptor.shape.size()))) {
      return fmt::format("sharded on dim {} of {} dims", placement.dim, descriptor.shape.size());
    }
  }
  return "";
}

/// The block of the tensor that the placements give this rank: axes in order, each cutting what the
/// ones before it left.
std::vector<Stretch> BoxOf(const PhaseEvidence& phase, const RankEvidence& rank,
                           const TensorDescriptor& descriptor) {
  std::vector<Stretch> box;
  for (const int64_t size : descriptor.shape) box.push_back({0, static_cast<uint64_t>(size)});
  for (size_t axis = 0; axis < descriptor.placements.size(); ++axis) {
    const PlacementRecord& placement = descriptor.placements[axis];
    if (placement.kind != "shard") continue;
    Stretch& range = box[static_cast<size_t>(placement.dim)];
    range = ChunkOf(range, static_cast<uint64_t>(phase.mesh[axis].size),
                    static_cast<uint64_t>(rank.coordinates[axis]));
  }
  return box;
}

std::string BoxText(const std::vector<Stretch>& box) {
  std::vector<std::string> dims;
  for (const Stretch& range : box) dims.push_back(fmt::format("[{}, {})", range.begin, range.end));
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
  const std::string malformed = Malformed(phase, rank, descriptor);
  judgement.Compared();
  if (!malformed.empty()) {
    judgement.Found(FindingAt(phase, stage, name, "malformed", {rank.rank}, malformed));
    return;
  }
  const std::vector<Stretch> box = BoxOf(phase, rank, descriptor);
  const auto expected = ExpandBox(descriptor.shape, box);
  const auto seen = Expand(descriptor.owned);
  if (!expected || !seen) {
    judgement.Inconclusive(fmt::format("{} is cut into too many pieces to be judged", name));
    return;
  }
  if (*expected == *seen) return;
  Finding finding = FindingAt(
      phase, stage, name, "chunk", {rank.rank},
      fmt::format("it owns {} of {}; torch.chunk gives it {} (dims {})", StretchesText(*seen),
                  ShapeText(descriptor.shape), StretchesText(*expected), BoxText(box)));
  finding.expected = StretchesText(*expected);
  finding.seen = StretchesText(*seen);
  judgement.Found(std::move(finding));
}

bool Has(const TensorDescriptor& descriptor, const std::string& kind) {
  return std::any_of(descriptor.placements.begin(), descriptor.placements.end(),
                     [&](const PlacementRecord& placement) { return placement.kind == kind; });
}

/// \claim      On every rank the owned runs of a tensor placed Shard(d) are the block that
///             torch.chunk(dim d, axis size) gives its mesh coordinate.
/// \needs      values, plain, resume: sharded, materialized, ready, restored
/// \tolerance  none: sets of elements
/// \killed_by  sharding.floor_plus_remainder, sharding.ceil_on_every_rank
/// \source     torch.chunk documentation; pytorch/pytorch#136228 (two chunk rules in one program)
void Check(const Evidence& evidence, Judgement& judgement) {
  bool other_rule = false;
  for (const PhaseEvidence* phase : LoadPhases(evidence, judgement)) {
    FinalStages(*phase, judgement);  // says which are not there
    for (const RankEvidence& rank : phase->ranks) {
      std::set<std::pair<std::string, int64_t>> judged;  // a descriptor needs judging once
      for (const StageRecord& stage : rank.stages) {
        for (const auto& [name, state] : stage.tensors) {
          const TensorDescriptor& descriptor = rank.Descriptor(state);
          const bool other = Has(descriptor, "strided_shard") || Has(descriptor, "flat_shard");
          other_rule = other_rule || other;
          if (!Has(descriptor, "shard") || other) continue;
          if (!judged.emplace(name, state.descriptor).second) continue;
          CheckTensor(*phase, rank, stage.Key(), name, descriptor, judgement);
        }
      }
    }
  }
  judgement.Skipped(other_rule ? "strided and flat shards do not follow torch.chunk"
                               : "nothing is sharded");
}

const PropertyRegistration kRegistration{{
    .id = "sharding.chunk_rule",
    .claim =
        "Shard(d) cuts a dim as torch.chunk does: ceil-sized chunks, trailing ones short or empty.",
    .needs = "values, plain, resume: every stage with sharded tensors",
    .tolerance = "none: sets of elements",
    .source = "torch.chunk documentation; pytorch/pytorch#136228",
    .killed_by = {"sharding.floor_plus_remainder", "sharding.ceil_on_every_rank"},
    .check = Check,
}};

}  // namespace
}  // namespace shardproof
