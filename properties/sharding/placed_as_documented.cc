// sharding.placed_as_documented: each axis of a mesh cuts what it stands for.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "verify/verdict/holders.h"
#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"

namespace shardproof::sharding::placed_as_documented {
namespace {

using Words = std::vector<std::string>;

/// The names on the way to a tensor, without the wrappers that PEFT puts around a layer.
Words WordsOf(const std::string& name) {
  Words words;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string word = name.substr(begin, end - begin);
    if (word != "base_layer") words.push_back(word);
    begin = end + 1;
  }
  return words;
}

/// What Transformers' plans of tensor parallelism cut "rowwise", by the names that its models have
/// for it: projections back into the residual stream.
bool IsProjectionBack(const Words& words) {
  static const std::set<std::string> modules = {"o_proj", "out_proj", "down_proj", "w2",
                                                "linear_fc2"};
  const size_t count = words.size();
  if (modules.contains(words[count - 1])) return true;  // packed experts: a parameter of this name
  if (count < 2) return false;
  return modules.contains(words[count - 2]) ||
         (count > 2 && words[count - 2] == "proj" && words[count - 3] == "attn");
}

bool IsExpert(const Words& words) {
  return words.size() > 2 &&
         std::find(words.begin() + 1, words.end() - 1, "experts") != words.end() - 1;
}

std::optional<int64_t> DimOfTensorParallel(const Words& words, size_t dims) {
  const bool back = IsProjectionBack(words);
  if (dims == 1) {
    const bool is_bias = words.size() > 1 && words.back() == "bias" &&
                         words[words.size() - 2].find("norm") == std::string::npos;
    return is_bias && !back ? std::optional<int64_t>(0) : std::nullopt;
  }
  const int64_t out = IsExpert(words) && dims == 3 ? 1 : 0;  // [experts, out, in] or [out, in]
  return back ? out + 1 : out;
}

/// What each axis of the mesh is to make of a parameter. The cuts are made in this order: experts
/// are dealt out, tensor parallelism, data parallelism. An axis that cuts a dim after one to its
/// right has done is a strided shard.
std::vector<PlacementRecord> Documented(const std::string& name, const TensorDescriptor& descriptor,
                                        const std::vector<AxisCase>& axes) {
  std::vector<PlacementRecord> plan(axes.size(), PlacementRecord{.kind = "replicate"});
  if (descriptor.kind != "parameter" || descriptor.shape.empty()) return plan;
  const Words words = WordsOf(name);
  const bool is_expert = IsExpert(words);
  const auto tensor_parallel = DimOfTensorParallel(words, descriptor.shape.size());
  std::vector<std::pair<std::string, int64_t>> cuts;
  if (is_expert) cuts.emplace_back("ep", 0);
  if (tensor_parallel) cuts.emplace_back("tp", *tensor_parallel);
  cuts.emplace_back("dp_shard", 0);
  if (!is_expert) cuts.emplace_back("ep", 0);
  for (const auto& [name, dim] : cuts) {
    for (size_t axis = 0; axis < axes.size(); ++axis) {
      if (axes[axis].name != name) continue;
      int64_t pieces = 1;
      for (size_t right = axis + 1; right < axes.size(); ++right) {
        const bool same = plan[right].kind != "replicate" && plan[right].dim == dim;
        if (same) pieces *= axes[right].size;
      }
      plan[axis] = {pieces > 1 ? "strided_shard" : "shard", dim, pieces};
    }
  }
  return plan;
}

/// The names of each tensor that has several, which are one tensor and so are placed as any of
/// them.
std::map<int64_t, std::vector<std::string>> TiedNames(const RankEvidence& rank,
                                                      const StageRecord& record) {
  std::map<int64_t, std::vector<std::string>> names;
  for (const auto& [name, state] : record.tensors) {
    const int64_t group = rank.Descriptor(state).alias_group;
    if (group >= 0) names[group].push_back(name);
  }
  return names;
}

void CheckTensor(const std::vector<std::string>& names, const TensorDescriptor& descriptor,
                 const MeshOfTensor& mesh, int64_t rank, FindingsByRank& findings,
                 Judgement& judgement) {
  judgement.Compared(descriptor.placements.size());
  const std::string seen = PlacementsText(descriptor.placements);
  std::string wanted;
  for (const std::string& name : names) {
    wanted = PlacementsText(Documented(name, descriptor, mesh.axes));
    if (wanted == seen) return;
  }
  findings.Add(descriptor.name, "placement",
               fmt::format("shape {}: the axes of its mesh have it as {}, and are documented to "
                           "have it as {}",
                           ShapeText(descriptor.shape), seen, wanted),
               {rank}, {.against = {Against::What::kPlacements}});
}

/// In the reference every axis places every tensor as src/README.md says of it, from when it is
/// sharded on.
void Check(const Evidence& evidence, Judgement& judgement) {
  if (!IsReference(evidence)) {
    judgement.Skipped("how a subject's axes place tensors is the subject's own choice");
    return;
  }
  for (const PhaseEvidence* phase : LoadPhases(evidence, judgement)) {
    for (const std::string& stage : FinalStages(*phase, judgement)) {
      FindingsByRank findings(*phase, stage);
      for (const RankEvidence& rank : phase->ranks) {
        const StageRecord* record = rank.Stage(stage);
        if (record == nullptr) continue;
        const auto tied = TiedNames(rank, *record);
        for (const auto& [name, state] : record->tensors) {
          const TensorDescriptor& descriptor = rank.Descriptor(state);
          if (descriptor.placements.empty()) continue;
          const auto names = tied.find(descriptor.alias_group);
          CheckTensor(names == tied.end() ? std::vector{name} : names->second, descriptor,
                      MeshOf(*phase, rank, descriptor), rank.rank, findings, judgement);
        }
      }
      findings.Report(judgement);
    }
  }
  judgement.Skipped("nothing is on a mesh");
}

const PropertyRegistration kRegistration{{
    .id = "sharding.placed_as_documented",
    .claim = "Each axis of the reference's mesh cuts the dims that it is documented to cut: an "
             "expert axis deals out whole experts, tensor parallelism cuts the output of a layer "
             "or its input.",
    .reads = {{LoadingPhases(), {Stage::kReady, Stage::kRestored}}},
    .tolerance = "none: names of placements",
    .source = "src/README.md, axes of a mesh; Transformers' base_model_tp_plan; FSDP2 and "
              "DTensor's _StridedShard for axes that cut the same dim",
    .killed_by = {"sharding.experts_cut_within", "sharding.strided_placed_as_plain"},
    .check = Check,
}};

}  // namespace
}  // namespace shardproof::sharding::placed_as_documented
