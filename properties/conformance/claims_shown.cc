// conformance.claims_shown: what a subject claims to do has left its traces in the evidence.
#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <optional>
#include <set>

#include "verify/case/axes.h"
#include "verify/verdict/holders.h"
#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"

namespace shardproof::conformance::claims_shown {
namespace {

/// Of tensors once they are ready, on mesh axes of more than one rank.
std::set<std::string> PlacementsIn(const PhaseEvidence& phase) {
  std::set<std::string> kinds;
  for (const RankEvidence& rank : phase.ranks) {
    for (const StageRecord& stage : rank.stages) {
      if (stage.of != "model" || (stage.name != Stage::kReady && stage.name != Stage::kRestored))
        continue;
      for (const auto& [name, state] : stage.tensors) {
        const TensorDescriptor& descriptor = rank.Descriptor(state);
        const std::vector<AxisCase>& axes = MeshOf(phase, rank, descriptor).axes;
        for (size_t axis = 0; axis < descriptor.placements.size(); ++axis) {
          const bool is_split = axis >= axes.size() || axes[axis].size > 1;
          if (is_split) kinds.insert(descriptor.placements[axis].kind);
        }
      }
    }
  }
  return kinds;
}

std::set<std::string> CollectivesIn(const PhaseEvidence& phase) {
  std::set<std::string> ops;
  for (const RankEvidence& rank : phase.ranks) {
    for (const CollectiveRecord& record : rank.collectives) ops.insert(record.op);
  }
  return ops;
}

/// What was observed, as `saved` or `saved.state_dict`; `loaded.keys`: missing and unexpected ones.
std::set<std::string> StagesIn(const PhaseEvidence& phase) {
  std::set<std::string> keys;
  for (const RankEvidence& rank : phase.ranks) {
    for (const StageRecord& record : rank.stages) keys.insert(record.Key());
    if (rank.keys) keys.insert("loaded.keys");
  }
  return keys;
}

bool Matches(const std::string& pattern, const std::set<std::string>& seen) {
  return std::any_of(seen.begin(), seen.end(), [&](const std::string& name) {
    return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  });
}

class ClaimsCheck {
 public:
  ClaimsCheck(const Evidence& evidence, const PhaseEvidence& values, Judgement& judgement)
      : evidence_(evidence), values_(values), judgement_(judgement) {
    for (const PhaseEvidence& phase : evidence.phases) {
      collectives_.merge(CollectivesIn(phase));
      stages_.merge(StagesIn(phase));
      files_.insert(phase.saved_files.begin(), phase.saved_files.end());
      if (phase.ranks.empty()) continue;
      trains_ = trains_ || phase.facts().trains;
      ended_well_ = ended_well_ && AllEndedWell(phase) && !WasStruck(phase);
    }
  }

  void Run() {
    const bool is_alone = values_.WorldSize() == 1;
    for (const auto& [what, claims] : evidence_.shows) {
      const bool needs_others = what == "placements" || what == "collectives";
      if (is_alone && needs_others) continue;  // one rank shards nothing and sends nothing
      if (what == "collectives" && evidence_.WhyCannot("collectives")) continue;
      if (what == "files" && evidence_.WhyCannot("save")) continue;
      for (const std::string& claim : claims) {
        if (what != "stages" || IsDue(claim)) Check(what, claim);
      }
    }
  }

 private:
  /// Whether the job came to where a stage is: to its end, and to steps if it was to take any.
  bool IsDue(const std::string& key) const {
    if (!ended_well_) return false;
    const std::optional<Stage> stage = FindStage(key.substr(0, key.find_first_of("@.")));
    return !stage || !FactsOf(*stage).is_step || trains_;
  }

  void Check(const std::string& what, const std::string& claim) {
    judgement_.Compared();
    const std::set<std::string>& seen = what == "placements" ? placements_
                                        : what == "files"    ? files_
                                        : what == "stages"   ? stages_
                                                             : collectives_;
    if (Matches(claim, seen)) return;
    Finding finding = FindingAt(
        values_, what == "placements" ? StageKey(Stage::kReady) : StageKey(), "", "not-shown", {},
        fmt::format("the subject claims {} \"{}\", but there is none; seen: {}", what, claim,
                    seen.empty() ? "none" : ListSome({seen.begin(), seen.end()}, 6)));
    finding.expected = claim;
    judgement_.Found(std::move(finding));
  }

  const Evidence& evidence_;
  const PhaseEvidence& values_;
  Judgement& judgement_;
  const std::set<std::string> placements_ = PlacementsIn(values_);
  std::set<std::string> collectives_;
  std::set<std::string> files_;
  std::set<std::string> stages_;
  bool trains_ = false;
  bool ended_well_ = true;
};

bool IsDivided(const TensorDescriptor& descriptor) {
  const auto& placements = descriptor.placements;
  return descriptor.OwnedElements() != descriptor.ElementCount() ||
         std::any_of(placements.begin(), placements.end(), [](const PlacementRecord& placement) {
           return placement.kind != "replicate" && placement.kind != "partial";
         });
}

/// Whether any rank has something at `ready` that is not the whole of what all ranks have.
bool IsAnythingDivided(const PhaseEvidence& phase) {
  const size_t all = TensorNames(phase, Stage::kReady).size();
  return std::any_of(phase.ranks.begin(), phase.ranks.end(), [&](const RankEvidence& rank) {
    const StageRecord* ready = rank.Stage(Stage::kReady);
    if (ready == nullptr) return false;
    return ready->tensors.size() != all ||
           std::any_of(ready->tensors.begin(), ready->tensors.end(), [&](const auto& tensor) {
             return IsDivided(rank.Descriptor(tensor.second));
           });
  });
}

/// Whether ranks along an axis of the mesh hold different parts, by the name that it has.
bool Divides(const AxisCase& axis) {
  static const std::set<std::string> dividing = {"dp_shard", "tp", "ep", "pp"};
  return axis.size > 1 && dividing.contains(axis.name);
}

/// Of a subject that does not say what must be seen: a mesh that was asked for is used.
void CheckMesh(const Evidence& evidence, Judgement& judgement) {
  const std::vector<AxisCase>& mesh = evidence.test_case.mesh;
  if (!evidence.mesh_is_asked || std::none_of(mesh.begin(), mesh.end(), Divides)) {
    judgement.Skipped(
        "the subject declares nothing that must be seen (SHOWS), and no mesh that divides a model "
        "was asked for (--mesh)");
    return;
  }
  const PhaseEvidence* values = PhaseToJudge(evidence, Phase::kValues, judgement);
  if (values == nullptr || !StageToJudge(*values, Stage::kReady, judgement)) return;
  judgement.Compared();
  if (IsAnythingDivided(*values)) return;
  judgement.Found(FindingAt(*values, Stage::kReady, "", "nothing-sharded", {},
                            fmt::format("the mesh {} was asked for (--mesh), but every rank holds "
                                        "every tensor whole: nothing is sharded on it",
                                        MeshText(mesh))));
}

/// Whether two ranks of a mesh differ in the coordinate of one axis and in no other.
bool AreAlong(size_t axis, const RankEvidence& one, const RankEvidence& other) {
  std::vector<int64_t> moved = one.coordinates;
  if (axis >= moved.size() || axis >= other.coordinates.size()) return false;
  moved[axis] = other.coordinates[axis];
  return moved == other.coordinates && one.coordinates != other.coordinates;
}

/// Along an axis that is asked for as one of replicas, ranks hold the same part of every tensor.
void CheckReplicas(const Evidence& evidence, const PhaseEvidence& phase, Judgement& judgement) {
  if (!evidence.mesh_is_asked || !phase.laid_over.empty()) return;  // such an axis divides others
  for (size_t axis = 0; axis < phase.mesh.size(); ++axis) {
    if (phase.mesh[axis].name != "dp_replicate") continue;
    FindingsByRank findings(phase, Stage::kReady);
    for (const std::string& name : TensorNames(phase, Stage::kReady)) {
      const TensorState* first = FindTensor(phase.ranks[0], Stage::kReady, name).state;
      for (const RankEvidence& rank : phase.ranks) {
        const TensorState* other = FindTensor(rank, Stage::kReady, name).state;
        if (first == nullptr || other == nullptr || !AreAlong(axis, phase.ranks[0], rank)) continue;
        judgement.Compared();
        if (first->coverage == other->coverage) continue;
        findings.Add(name, "not-replicated",
                     fmt::format("it holds another part than rank 0, but along {1} the mesh {0} "
                                 "(--mesh) has replicas",
                                 MeshText(phase.mesh), phase.mesh[axis].name),
                     {rank.rank});
        return findings.Report(judgement);  // of all tensors alike: one says enough
      }
    }
  }
}

/// Every placement, collective, file and stage that the subject's SHOWS names was seen: the
/// placements on tensors at `ready`, the collectives and stages in any phase, the files (patterns)
/// in a checkpoint that it left. So a subject that does not run what it is named after, or leaves
/// out what it promises to observe, is told. A mesh that was asked for by its axes has replicas
/// along `dp_replicate`, and, of a subject that says nothing but stages, divides something, if its
/// axes are of that kind.
void Check(const Evidence& evidence, Judgement& judgement) {
  const PhaseEvidence* ran = evidence.Phase(Phase::kValues);
  if (ran != nullptr && !ran->ranks.empty()) CheckReplicas(evidence, *ran, judgement);
  // Stages say nothing of how it shards.
  if (std::all_of(evidence.shows.begin(), evidence.shows.end(),
                  [](const auto& shown) { return shown.first == "stages"; })) {
    CheckMesh(evidence, judgement);
  }
  if (evidence.shows.empty()) return;
  const PhaseEvidence* values = PhaseToJudge(evidence, Phase::kValues, judgement);
  if (values == nullptr) return;
  if (!StageToJudge(*values, Stage::kReady, judgement)) return;
  ClaimsCheck(evidence, *values, judgement).Run();
  judgement.Skipped("on one rank nothing is sharded and nothing is sent");
}

const PropertyRegistration kRegistration{{
    .id = "conformance.claims_shown",
    .claim = "The subject's placements, collectives, files and stages show what it declares to do.",
    .reads = {{{Phase::kValues}, {Stage::kReady}},
              {EveryPhase(), {}, "collectives, saved files, stages"}},
    .tolerance = "none: sets",
    .source = "the definition of a conformance test",
    .killed_by = {"subject.claims_to_shard", "subject.claims_dcp", "subject.ignores_its_mesh",
                  "subject.shards_its_replicas", "subject.state_dict_promised"},
    .check = Check,
    .only_subjects = true,
}};

}  // namespace
}  // namespace shardproof::conformance::claims_shown
