// sharding.shards_tile: the ranks' shards are a disjoint, exact cover of the global tensor.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "verify/verdict/holders.h"
#include "verify/verdict/image.h"
#include "verify/verdict/runs.h"
#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"
#include "verify/verdict/values.h"

namespace shardproof::sharding::shards_tile {
namespace {

struct OwnedStretch {
  Stretch elements;
  int64_t rank;
};

/// What all parts own. If every run repeats with the same stride over the whole tensor, the first
/// period stands for all: columns of a long matrix need not be expanded row by row.
struct Ownership {
  std::vector<OwnedStretch> stretches;
  uint64_t total = 0;
  bool is_periodic = false;
};

bool IsPeriodic(const Image& image, uint64_t total, uint64_t& stride) {
  stride = 0;
  for (const Part& part : image.parts) {
    for (const OwnedRun& run : part.descriptor->owned) {
      if (run.count < 2 || run.stride == 0) return false;
      if (stride == 0) stride = run.stride;
      if (run.stride != stride || total % stride != 0 || run.count != total / stride) return false;
      if (run.length > stride || run.start > stride - run.length) return false;
    }
  }
  return stride > 0;
}

std::optional<Ownership> Owned(const Image& image) {
  Ownership owned;
  owned.total = image.parts[0].descriptor->ElementCount();
  uint64_t stride = 0;
  owned.is_periodic = IsPeriodic(image, owned.total, stride);
  if (owned.is_periodic) owned.total = stride;
  for (const Part& part : image.parts) {
    std::vector<OwnedRun> runs = part.descriptor->owned;
    for (OwnedRun& run : runs) {
      if (owned.is_periodic) run.count = 1;
    }
    const auto stretches = Expand(runs);
    if (!stretches) return std::nullopt;
    for (const Stretch& stretch : *stretches) owned.stretches.push_back({stretch, part.rank->rank});
  }
  std::sort(owned.stretches.begin(), owned.stretches.end(),
            [](const OwnedStretch& a, const OwnedStretch& b) {
              return a.elements.begin != b.elements.begin ? a.elements.begin < b.elements.begin
                                                          : a.rank < b.rank;
            });
  return owned;
}

class TileCheck {
 public:
  TileCheck(const PhaseEvidence& phase, StageKey stage, std::string name, const Image& image,
            Judgement& judgement)
      : phase_(phase),
        stage_(std::move(stage)),
        name_(std::move(name)),
        image_(image),
        judgement_(judgement) {}

  /// One pass in ascending order. The first gap and the first overlap are reported.
  void Sweep(const Ownership& owned) {
    uint64_t covered = 0;
    int64_t last_rank = -1;
    for (const OwnedStretch& next : owned.stretches) {
      judgement_.Compared();
      if (next.elements.begin > covered) Gap({covered, next.elements.begin}, last_rank, next.rank);
      if (next.elements.begin < covered) {
        Overlap({next.elements.begin, std::min(covered, next.elements.end)}, last_rank, next.rank);
      }
      if (next.elements.end > covered) {
        covered = next.elements.end;
        last_rank = next.rank;
      }
    }
    judgement_.Compared();  // that it ends where the tensor ends, also where nothing is owned
    if (covered < owned.total) Gap({covered, owned.total}, last_rank, -1);
    if (covered > owned.total) {
      Report("outside", {owned.total, covered}, {last_rank}, "lie beyond the tensor's end");
    }
  }

 private:
  void Gap(Stretch at, int64_t before, int64_t after) {
    if (gap_found_) return;
    gap_found_ = true;
    std::vector<int64_t> ranks;
    if (before >= 0) ranks.push_back(before);
    if (after >= 0) ranks.push_back(after);
    if (ranks.empty()) ranks = image_.Ranks();
    Report("gap", at, ranks, "are owned by no rank (it shows between these)");
  }

  void Overlap(Stretch at, int64_t a, int64_t b) {
    if (overlap_found_) return;
    overlap_found_ = true;
    Report("overlap", at, {a, b}, a == b ? "are owned twice" : "are owned by both");
  }

  void Report(const std::string& kind, Stretch at, std::vector<int64_t> ranks,
              const std::string& what) {
    Finding finding = FindingAt(
        phase_, stage_, name_, kind, std::move(ranks),
        fmt::format("elements [{}, {}) of {} {}", at.begin, at.end, ShapeText(image_.shape), what));
    finding.index = at.begin;
    finding.coordinates = CoordinatesOf(at.begin, image_.shape);
    finding.differing = at.end - at.begin;
    judgement_.Found(std::move(finding));
  }

  const PhaseEvidence& phase_;
  StageKey stage_;
  std::string name_;
  const Image& image_;
  Judgement& judgement_;
  bool gap_found_ = false;
  bool overlap_found_ = false;
};

/// The coverage sums were taken over the bytes that were digested: they must say what the runs say.
void CheckCoverage(const PhaseEvidence& phase, const StageKey& stage, const std::string& name,
                   const Image& image, Judgement& judgement) {
  const std::optional<uint64_t> element_bytes = ElementBytes(image.dtype);
  if (!element_bytes) {
    judgement.Inconclusive(fmt::format("{} has the unknown dtype {}", name, image.dtype));
    return;
  }
  std::vector<int64_t> unlike;
  for (const Part& part : image.parts) {
    judgement.Compared();
    if (part.state->coverage != CoverageOf(part.descriptor->owned, *element_bytes)) {
      unlike.push_back(part.rank->rank);
    }
  }
  if (unlike.empty()) return;
  judgement.Found(FindingAt(phase, stage, name, "coverage", unlike,
                            "the bytes that were digested are not those of its owned runs"));
}

/// Whether the sizes are those of some cut: torch.chunk's, torch.tensor_split's, or one with what
/// is left over in the last part.
bool AreOfOneCut(std::vector<int64_t> sizes) {
  const auto parts = static_cast<int64_t>(sizes.size());
  const int64_t size = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  const int64_t ceil = (size + parts - 1) / parts;
  const int64_t floor = size / parts;
  std::vector<std::vector<int64_t>> cuts(3);
  for (int64_t at = 0; at < parts; ++at) {
    cuts[0].push_back(std::min(ceil, std::max<int64_t>(0, size - ceil * at)));
    cuts[1].push_back(floor + (at < size % parts ? 1 : 0));
    cuts[2].push_back(floor + (at + 1 == parts ? size % parts : 0));
  }
  std::sort(sizes.begin(), sizes.end());
  return std::any_of(cuts.begin(), cuts.end(), [&](std::vector<int64_t>& cut) {
    std::sort(cut.begin(), cut.end());
    return cut == sizes;
  });
}

/// Of parts that are not of one size, those that make up one replica.
void CheckUnevenParts(const PhaseEvidence& phase, const StageKey& stage, const std::string& name,
                      const std::vector<int64_t>& holders, Judgement& judgement) {
  std::map<std::vector<int64_t>, std::vector<int64_t>> sizes;  // by the ranks that make it up
  size_t dim = 0;
  for (const int64_t number : holders) {
    const RankEvidence& rank = phase.ranks[static_cast<size_t>(number)];
    const TensorDescriptor& own = *FindTensor(rank, stage, name).descriptor;
    const GroupsRecord* groups = rank.Groups(own);
    dim = static_cast<size_t>(own.placements[0].dim);
    if (groups != nullptr && dim < own.local_shape.size())
      sizes[groups->whole].push_back(own.local_shape[dim]);
  }
  for (const auto& [ranks, of_parts] : sizes) {
    judgement.Compared();
    if (of_parts.size() != ranks.size() || AreOfOneCut(of_parts)) continue;
    judgement.Found(FindingAt(
        phase, stage, name, "cut", ranks,
        fmt::format("the sizes of its parts along dim {} are {}, which no way of sharding gives",
                    dim, ShapeText(of_parts))));
  }
}

using Held = std::vector<std::pair<int64_t, int64_t>>;  ///< rank and descriptor

Held HeldBy(const Image& image) {
  Held held;
  for (const Part& part : image.parts) held.emplace_back(part.rank->rank, part.state->descriptor);
  return held;
}

/// Of a nested or a lazy tensor no rank can say what it owns.
bool IsOwnedUnsaid(const Image& image) {
  return !image.unreadable.empty() &&
         std::all_of(image.parts.begin(), image.parts.end(),
                     [](const Part& part) { return part.descriptor->owned.empty(); });
}

bool IsAmong(int64_t rank, const std::vector<int64_t>& ranks) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

void CheckStage(const PhaseEvidence& phase, const StageKey& stage,
                std::map<std::string, Held>& seen, Judgement& judgement) {
  const bool is_whole = std::all_of(phase.ranks.begin(), phase.ranks.end(), [&](const auto& rank) {
    return rank.Stage(stage) != nullptr && rank.Stage(stage)->complete;
  });
  const bool is_between = stage == Stage::kSharded || stage == Stage::kMaterialized;
  for (const std::string& name : TensorNames(phase, stage)) {
    std::vector<int64_t> uneven;
    for (const std::vector<int64_t>& ranks : HoldersOf(phase, stage, name).tensors) {
      if (!AreUnevenParts(phase, stage, name, ranks)) continue;
      if (is_whole) CheckUnevenParts(phase, stage, name, ranks, judgement);
      uneven.insert(uneven.end(), ranks.begin(), ranks.end());
    }
    for (const Image& image : ImagesOf(phase, stage, name)) {
      if (image.defined) CheckCoverage(phase, stage, name, image, judgement);
      if (!is_between && image.partial && image.unreadable.empty()) {
        judgement.Found(FindingAt(phase, stage, name, "partial", image.Ranks(),
                                  "its values still await a reduction over ranks"));
      }
      // A rank that did not get here leaves a gap that is no fault of the sharding.
      Held held = HeldBy(image);
      Held& earlier = seen[fmt::format("{}|{}", name, held[0].first)];
      if (!is_whole || held == earlier || IsAmong(image.Ranks()[0], uneven)) continue;
      earlier = std::move(held);
      if (IsOwnedUnsaid(image)) {
        NoteUnreadable(phase, stage, name, image.unreadable, judgement);
        continue;
      }
      const std::optional<Ownership> owned = Owned(image);
      if (!owned) {
        judgement.Inconclusive(fmt::format("{} is cut into too many pieces to be judged", name));
        continue;
      }
      TileCheck(phase, stage, name, image, judgement).Sweep(*owned);
    }
  }
}

/// The owned runs of each replica's ranks are disjoint and their union is the whole tensor; the
/// coverage sums agree with the runs; nothing awaits a reduction.
void Check(const Evidence& evidence, Judgement& judgement) {
  for (const PhaseEvidence* phase : LoadPhases(evidence, judgement)) {
    FinalStages(*phase, judgement);  // says which are not there
    std::map<std::string, Held> seen;
    for (const Stage stage :
         {Stage::kSharded, Stage::kMaterialized, Stage::kReady, Stage::kRestored}) {
      CheckStage(*phase, stage, seen, judgement);
    }
  }
  for (const PhaseEvidence* phase : TrainPhases(evidence)) {
    for (const char* of : {"model", "optimizer"}) {
      std::map<std::string, Held> seen;
      for (const StageKey stage : TrainStages(*phase, of, judgement)) {
        CheckStage(*phase, stage, seen, judgement);
      }
    }
  }
}

const PropertyRegistration kRegistration{{
    .id = "sharding.shards_tile",
    .claim = "The shards of the ranks tile every tensor on every replica: no gap and no "
             "overlap.",
    .reads = {{LoadingPhases(),
               {Stage::kSharded, Stage::kMaterialized, Stage::kReady, Stage::kRestored}},
              {TrainingPhases(),
               {Stage::kReady, Stage::kStepped, Stage::kSaved, Stage::kRestored, Stage::kResumed}}},
    .tolerance = "none: sets of elements",
    .source = "pytorch/pytorch#136228, ByteDance-Seed/VeOmni#794, pytorch/pytorch#168134; the "
              "definition of a partition",
    .killed_by = {"sharding.last_rank_drops_remainder", "sharding.ceil_on_every_rank"},
    .check = Check,
}};

}  // namespace
}  // namespace shardproof::sharding::shards_tile
