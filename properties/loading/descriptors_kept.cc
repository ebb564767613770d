// loading.descriptors_kept: what a tensor is stays what it was: dtype, shape, flags, attributes and
// the parameter object itself.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "verify/case/names.h"
#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"

namespace shardproof::loading::descriptors_kept {
namespace {

std::string AttributesText(const std::map<std::string, std::string>& attributes) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : attributes) parts.push_back(key + "=" + value);
  return parts.empty() ? "none" : ListSome(parts);
}

const char* YesNo(bool value) { return value ? "true" : "false"; }

/// Attributes that a framework's parameters have lost: many do in one go, and few of them matter.
/// One finding each, if the model's own code reads it, or if that is not known.
class LostAttributes {
 public:
  LostAttributes(const PhaseEvidence& phase, const std::string& stage, const OracleRecord& oracle)
      : phase_(phase), stage_(stage), twin_(oracle.twin ? &*oracle.twin : nullptr) {
    if (twin_ != nullptr && !twin_->why_none.empty()) twin_ = nullptr;
  }

  void Add(const std::string& attribute, const std::string& tensor, int64_t rank) {
    lost_[attribute][tensor].push_back(rank);
  }

  void Report(Judgement& judgement) const {
    for (const auto& [attribute, tensors] : lost_) {
      std::string reader;
      if (twin_ != nullptr) {
        const auto used = twin_->used_attributes.find(attribute);
        if (used == twin_->used_attributes.end()) continue;
        reader = fmt::format("; {} reads it", used->second);
      }
      std::vector<std::string> names;
      std::vector<int64_t> ranks;
      for (const auto& [tensor, where] : tensors) {
        names.push_back(tensor);
        ranks.insert(ranks.end(), where.begin(), where.end());
      }
      judgement.Found(FindingAt(phase_, stage_, names[0], "attribute " + attribute, ranks,
                                fmt::format("the attribute {} of {} parameters is gone: {}{}",
                                            attribute, names.size(), ListSome(names), reader),
                                {.against = {Against::What::kDeclared}}));
    }
  }

 private:
  const PhaseEvidence& phase_;
  const std::string& stage_;
  const TwinOracle* twin_;
  std::map<std::string, std::map<std::string, std::vector<int64_t>>> lost_;
};

/// Compares field by field with what the tensor should be like.
class DescriptorCheck {
 public:
  /// \param lost        takes attributes that are gone; null: each is a finding of its own
  /// \param may_freeze  whether what could be trained may end up frozen: the plain path has it so,
  ///   or PEFT, which freezes the model that it puts an adapter into, and the adapter too where it
  ///   is not to be trained
  DescriptorCheck(std::string tensor, Phase phase, int64_t rank, FindingsByRank& findings,
                  LostAttributes* lost, bool may_freeze, Judgement& judgement)
      : tensor_(std::move(tensor)),
        phase_(phase),
        rank_(rank),
        findings_(findings),
        lost_(lost),
        may_freeze_(may_freeze),
        judgement_(judgement) {}

  void Field(const std::string& kind, const std::string& seen, const std::string& expected,
             const std::string& against, Against::What what) {
    judgement_.Compared();
    if (seen == expected) return;
    const bool is_earlier = what == Against::What::kEarlier;
    findings_.Add(tensor_, kind, fmt::format("{} is {}, {} {}", kind, seen, against, expected),
                  {rank_},
                  {.against = {what, phase_, is_earlier ? StageKey(Stage::kBuilt) : StageKey()}});
  }

  void HoldAgainst(const TensorDescriptor& seen, const TensorDescriptor& built) {
    const std::string against = "at `built` it was";
    const auto what = Against::What::kEarlier;
    Field("dtype", seen.dtype, built.dtype, against, what);
    Field("shape", ShapeText(seen.shape), ShapeText(built.shape), against, what);
    Field("kind", seen.kind, built.kind, against, what);
    Field("persistent", YesNo(seen.persistent), YesNo(built.persistent), against, what);
    Gradient(seen, built.requires_grad, against, what);
    if (lost_ == nullptr) {
      Field("attributes", AttributesText(seen.attributes), AttributesText(built.attributes),
            against, what);
    } else {
      Attributes(seen, built.attributes, against, what);
    }
  }

  void HoldAgainst(const TensorDescriptor& seen, const TensorCase& declared) {
    const std::string against = "the model declares";
    const auto what = Against::What::kDeclared;
    Field("dtype", seen.dtype, declared.dtype, against, what);
    Field("shape", ShapeText(seen.shape), ShapeText(declared.shape), against, what);
    Field("kind", seen.kind, declared.kind, against, what);
    if (declared.kind == "buffer") {
      Field("persistent", YesNo(seen.persistent), YesNo(declared.persistent), against, what);
    } else {
      Gradient(seen, declared.requires_grad, against, what);
    }
    Attributes(seen, declared.attributes, against, what);
  }

 private:
  void Gradient(const TensorDescriptor& seen, bool expected, const std::string& against,
                Against::What what) {
    const bool sound = may_freeze_ && !seen.requires_grad;
    Field("requires_grad", YesNo(seen.requires_grad), YesNo(expected && !sound), against, what);
  }

  /// One that was added is none of the model's.
  void Attributes(const TensorDescriptor& seen, const std::map<std::string, std::string>& expected,
                  const std::string& against, Against::What what) {
    for (const auto& [key, value] : expected) {
      const auto found = seen.attributes.find(key);
      if (found == seen.attributes.end() && lost_ != nullptr) {
        judgement_.Compared();
        lost_->Add(key, tensor_, rank_);
        continue;
      }
      Field("attribute " + key, found == seen.attributes.end() ? "absent" : found->second, value,
            against, what);
    }
  }

  std::string tensor_;
  Phase phase_;
  int64_t rank_;
  FindingsByRank& findings_;
  LostAttributes* lost_;
  bool may_freeze_;
  Judgement& judgement_;
};

/// The local shape that the placements give, dim by dim, by torch.chunk's rule; as it is for kinds
/// of placement whose split is not that of chunk.
std::vector<int64_t> LocalShape(const PhaseEvidence& phase, const RankEvidence& rank,
                                const TensorDescriptor& descriptor) {
  std::vector<int64_t> local = descriptor.shape;
  const MeshOfTensor mesh = MeshOf(phase, rank, descriptor);
  for (size_t axis = 0; axis < descriptor.placements.size(); ++axis) {
    const PlacementRecord& placement = descriptor.placements[axis];
    if (!placement.kind.ends_with("shard")) continue;
    if (placement.kind != "shard") return descriptor.local_shape;
    const auto dim = static_cast<size_t>(placement.dim);
    if (axis >= mesh.axes.size() || axis >= mesh.coordinates.size() || dim >= local.size()) {
      return descriptor.local_shape;  // sharding.chunk_rule reports it
    }
    const int64_t chunk = (local[dim] + mesh.axes[axis].size - 1) / mesh.axes[axis].size;
    local[dim] = std::clamp<int64_t>(local[dim] - mesh.coordinates[axis] * chunk, 0, chunk);
  }
  return local;
}

/// The dims of more than one element here, from the outermost in memory on; nothing to tell of
/// fewer.
std::string OrderText(const std::vector<int64_t>& local_shape,
                      const std::vector<int64_t>& strides) {
  std::vector<std::string> dims;
  for (const size_t dim : OrderInMemory(strides)) {
    if (local_shape[dim] > 1) dims.push_back(std::to_string(dim));
  }
  return "[" + fmt::format("{}", fmt::join(dims, ", ")) + "]";
}

/// The strides of the dims of more than one element: no others say where anything is.
std::string StridesText(const std::vector<int64_t>& local_shape,
                        const std::vector<int64_t>& strides) {
  std::vector<std::string> dims;
  for (size_t dim = 0; dim < local_shape.size(); ++dim) {
    dims.push_back(local_shape[dim] > 1 ? std::to_string(strides[dim]) : "-");
  }
  return "[" + fmt::format("{}", fmt::join(dims, ", ")) + "]";
}

uint64_t Product(const std::vector<int64_t>& shape) {
  uint64_t product = 1;
  for (const int64_t size : shape) product *= static_cast<uint64_t>(size);
  return product;
}

/// What the model declares; but a framework's job may freeze what it likes of it, and then its own
/// flag at `built` is what must be kept.
TensorCase DeclaredFor(const Evidence& evidence, const TensorCase& declared,
                       const std::string& name, const RankEvidence& rank) {
  TensorCase expected = declared;
  if (IsReference(evidence)) return expected;
  const TensorDescriptor* built = FindTensor(rank, Stage::kBuilt, name).descriptor;
  const PhaseEvidence* values = evidence.Phase(Phase::kValues);
  if (built == nullptr && values != nullptr && !values->ranks.empty()) {
    built =
        FindTensor(values->ranks[0], Stage::kBuilt, name).descriptor;  // a restore shows no `built`
  }
  if (built != nullptr) expected.requires_grad = built->requires_grad;
  return expected;
}

void CheckTensor(const Evidence& evidence, const PhaseEvidence& phase, const RankEvidence& rank,
                 const std::string& stage, const std::string& name, const TensorState& state,
                 FindingsByRank& findings, LostAttributes& lost, Judgement& judgement) {
  const TensorDescriptor& seen = *FindTensor(rank, stage, name).descriptor;
  const auto declared = evidence.oracle.declared.find(name);
  const bool is_declared = declared != evidence.oracle.declared.end();
  const bool is_frozen_by_plain = is_declared && !declared->second.requires_grad;
  const bool may_freeze =
      !IsReference(evidence) && (is_frozen_by_plain || !evidence.test_case.model.adapter.empty());
  DescriptorCheck check(name, phase.phase, rank.rank, findings,
                        IsReference(evidence) ? nullptr : &lost, may_freeze, judgement);
  const TensorDescriptor* built = FindTensor(rank, Stage::kBuilt, name).descriptor;
  if (built != nullptr) {
    check.HoldAgainst(seen, *built);
    // A restore builds another model: only `ready` is of the model that was built.
    if (stage == Stage::kReady && !evidence.WhyCannot("identity") && built->identity >= 0 &&
        seen.identity != built->identity) {
      findings.Add(
          name, "rebuilt",
          fmt::format("the {} is another object than at `built`: whatever used it as a key is lost",
                      seen.kind),
          {rank.rank}, {.against = {Against::What::kEarlier, phase.phase, Stage::kBuilt}});
    }
  }
  if (is_declared) {
    check.HoldAgainst(seen, DeclaredFor(evidence, declared->second, name, rank));
    const std::vector<int64_t>& strides = declared->second.strides;
    if (!strides.empty() && strides.size() == seen.local_stride.size() &&
        strides.size() == seen.local_shape.size() && Product(seen.local_shape) > 0) {
      check.Field("order of dims", OrderText(seen.local_shape, seen.local_stride),
                  OrderText(seen.local_shape, strides), "in memory the model's strides give",
                  Against::What::kDeclared);
    }
    if (IsReference(evidence) && seen.local_stride.size() == seen.local_shape.size() &&
        (strides.empty() || strides.size() == seen.local_shape.size()) &&
        Product(seen.local_shape) > 0) {
      const auto order = OrderInMemory(
          strides.empty() ? std::vector<int64_t>(seen.local_shape.size(), 1) : strides);
      check.Field("local strides", StridesText(seen.local_shape, seen.local_stride),
                  StridesText(seen.local_shape, StridesInOrder(seen.local_shape, order)),
                  "without gaps in memory they are", Against::What::kDeclared);
    }
  }
  // What cannot be read in place, such as a sparse tensor, may have no local part.
  if (!state.unreadable.empty() && seen.local_shape.empty()) return;
  check.Field("local_shape", ShapeText(seen.local_shape), ShapeText(LocalShape(phase, rank, seen)),
              "its placements give", Against::What::kPlacements);
  check.Field("local elements", fmt::format("{}", Product(seen.local_shape)),
              fmt::format("{}", seen.OwnedElements()), "its owned runs have",
              Against::What::kPlacements);
}

/// dtype, global shape, kind, persistence, requires_grad and attributes at `ready` and
/// `restored` are those of `built` and of the declared model; the parameter object is the same
/// at `ready`; the local shape is what the placements give; where the model declares strides,
/// dims lie in memory in the order that they give. What a rank of the reference has lies there
/// without gaps, whatever its model has: it is memory of its own, and no view of more.
void Check(const Evidence& evidence, Judgement& judgement) {
  for (const PhaseEvidence* phase : LoadPhases(evidence, judgement)) {
    const std::vector<std::string> stages = FinalStages(*phase, judgement);
    if (phase->facts().resumes) {
      StageReached(*phase, Stage::kBuilt, judgement);
    } else {
      StageToJudge(*phase, Stage::kBuilt, judgement);
    }
    for (const std::string& stage : stages) {
      FindingsByRank findings(*phase, stage);
      LostAttributes lost(*phase, stage, evidence.oracle);
      for (const RankEvidence& rank : phase->ranks) {
        const StageRecord* record = rank.Stage(stage);
        if (record == nullptr) continue;
        for (const auto& [name, state] : record->tensors) {
          CheckTensor(evidence, *phase, rank, stage, name, state, findings, lost, judgement);
        }
      }
      findings.Report(judgement);
      lost.Report(judgement);
    }
  }
}

const PropertyRegistration kRegistration{{
    .id = "loading.descriptors_kept",
    .claim = "The dtype, shape, kind, persistence, requires_grad, attributes, memory order "
             "of dims and identity of each parameter do not change between the stages built "
             "and ready.",
    .reads = {{LoadingPhases(), {Stage::kBuilt, Stage::kReady, Stage::kRestored}}},
    .tolerance = "none: equality",
    .source = "pytorch/pytorch#136929, pytorch/torchtitan#4593, NVIDIA/Megatron-LM#1482, #5790",
    .killed_by = {"sharding.attributes_dropped", "sharding.requires_grad_reset",
                  "loading.buffers_cast", "loading.parameters_replaced", "loading.strides_lost",
                  "sharding.shard_is_a_view"},
    .check = Check,
}};

}  // namespace
}  // namespace shardproof::loading::descriptors_kept
