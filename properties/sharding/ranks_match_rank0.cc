// sharding.ranks_match_rank0: all ranks hold one and the same model.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "verify/verdict/holders.h"
#include "verify/verdict/locate.h"
#include "verify/verdict/optimizers_alike.h"
#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"
#include "verify/verdict/values.h"

namespace shardproof::sharding::ranks_match_rank0 {
namespace {

/// \param holders  ranks of the phase. loading.all_defined reports one that lacks the tensor.
/// \param by_part  whether only those that have the same part are alike
void CheckDescriptors(const PhaseEvidence& phase, const std::vector<int64_t>& holders,
                      const std::string& stage, const std::string& name, bool by_part,
                      FindingsByRank& findings, Judgement& judgement) {
  using First = std::pair<const RankEvidence*, const TensorDescriptor*>;
  std::map<std::vector<int64_t>, First> firsts;
  for (const int64_t number : holders) {
    const RankEvidence& rank = phase.ranks[static_cast<size_t>(number)];
    const TensorDescriptor* own = FindTensor(rank, stage, name).descriptor;
    const GroupsRecord* groups = by_part ? rank.Groups(*own) : nullptr;
    const auto [place, is_new] =
        firsts.emplace(groups ? groups->alike : std::vector<int64_t>(), First(&rank, own));
    if (is_new) continue;
    const auto& [first_rank, first] = place->second;
    const int64_t against = first_rank->rank;
    const auto field = [&](const char* what, const std::string& seen, const std::string& expected) {
      judgement.Compared();
      if (seen == expected) return;
      findings.Add(name, std::string("unlike-") + what,
                   fmt::format("{} is {}, on rank {} it is {}", what, seen, against, expected),
                   {rank.rank}, {.against = {Against::What::kRank, phase.phase, {}, against}});
    };
    field("dtype", own->dtype, first->dtype);
    // The shape of the whole follows from that of the part, and is no news.
    field("shape", ShapeText(by_part ? own->local_shape : own->shape),
          ShapeText(by_part ? first->local_shape : first->shape));
    field("placements", PlacementsText(own->placements), PlacementsText(first->placements));
    field("requires_grad", own->requires_grad ? "true" : "false",
          first->requires_grad ? "true" : "false");
    field("kind", own->kind, first->kind);
  }
}

/// Whether these are buffers that are not saved, of unlike sizes: each rank has computed them as
/// its own batches asked for.
bool AreCaches(const PhaseEvidence& phase, const std::vector<int64_t>& holders,
               const std::string& stage, const std::string& name) {
  const TensorDescriptor* first = nullptr;
  bool unlike = false;
  for (const int64_t number : holders) {
    const RankEvidence& rank = phase.ranks[static_cast<size_t>(number)];
    const TensorDescriptor* own = FindTensor(rank, stage, name).descriptor;
    if (own->kind != "buffer" || own->persistent || !own->placements.empty()) return false;
    if (first == nullptr) first = own;
    if (own->dtype != first->dtype || own->shape.size() != first->shape.size()) return false;
    unlike = unlike || own->shape != first->shape;
  }
  return unlike;
}

/// Whoever is said to hold a tensor with others must say the same of it.
void CheckGroups(const PhaseEvidence& phase, const std::vector<int64_t>& holders,
                 const std::string& stage, const std::string& name, FindingsByRank& findings,
                 Judgement& judgement) {
  for (const auto list : {&GroupsRecord::whole, &GroupsRecord::alike}) {
    std::map<std::vector<int64_t>, int64_t> said;  // and the first rank that says so
    for (const int64_t number : holders) {
      const RankEvidence& rank = phase.ranks[static_cast<size_t>(number)];
      const GroupsRecord* groups = rank.Groups(*FindTensor(rank, stage, name).descriptor);
      if (groups != nullptr) said.emplace(groups->*list, number);
    }
    std::map<int64_t, const std::vector<int64_t>*> group_of;
    for (const auto& [group, rank] : said) {
      judgement.Compared();
      for (const int64_t member : group) {
        const auto [known, is_new] = group_of.emplace(member, &group);
        if (is_new) continue;
        findings.Add(
            name, "unlike-groups",
            fmt::format("ranks [{}] {}, as rank {} says; rank {} says ranks [{}]",
                        fmt::join(group, ", "),
                        list == &GroupsRecord::whole ? "make it up" : "hold the same part of it",
                        rank, said.at(*known->second), fmt::join(*known->second, ", ")),
            {rank, said.at(*known->second)});
        break;
      }
    }
  }
}

/// No other rank can both have another part than this one and the same.
void CheckParts(const PhaseEvidence& phase, const std::vector<int64_t>& holders,
                const std::string& stage, const std::string& name, FindingsByRank& findings,
                Judgement& judgement) {
  for (const int64_t number : holders) {
    const RankEvidence& rank = phase.ranks[static_cast<size_t>(number)];
    const GroupsRecord* groups = rank.Groups(*FindTensor(rank, stage, name).descriptor);
    if (groups == nullptr) continue;
    std::vector<int64_t> both;
    std::set_intersection(groups->whole.begin(), groups->whole.end(), groups->alike.begin(),
                          groups->alike.end(), std::back_inserter(both));
    std::erase(both, number);
    judgement.Compared();
    if (both.empty()) continue;
    findings.Add(name, "unlike-groups",
                 fmt::format("ranks [{}] form the whole tensor, and ranks [{}] of them should hold "
                             "the same as rank {}: its mesh is not the job's",
                             fmt::join(groups->whole, ", "), fmt::join(both, ", "), number),
                 {number});
    return;  // of one mesh the others say the same
  }
}

/// Of an element that is named as if all parts were of the size of this one: where it lies, given
/// their sizes.
void PlaceInWhole(const PhaseEvidence& phase, const std::string& stage, Finding& finding) {
  if (!finding.index || finding.ranks.empty()) return;
  const RankEvidence& rank = phase.ranks[static_cast<size_t>(finding.ranks[0])];
  const TensorDescriptor& own = *FindTensor(rank, stage, finding.tensor).descriptor;
  const GroupsRecord* groups = rank.Groups(own);
  if (groups == nullptr || own.placements.empty() || own.owned.size() != 1) return;
  const auto cut = static_cast<size_t>(own.placements[0].dim);
  const auto number_of = [&](const TensorDescriptor& part) {
    const int64_t size = part.local_shape[cut];
    return size == 0 ? 0 : CoordinatesOf(part.owned[0].start, part.shape)[cut] / size;
  };
  const int64_t number = number_of(own);
  std::vector<int64_t> at = CoordinatesOf(*finding.index, own.shape);
  std::vector<int64_t> whole = own.shape;
  at[cut] -= number * own.local_shape[cut];
  whole[cut] = 0;
  for (const int64_t each : groups->whole) {
    const TensorDescriptor* part =
        FindTensor(phase.ranks[static_cast<size_t>(each)], stage, finding.tensor).descriptor;
    if (part == nullptr || part->owned.size() > 1) return;
    whole[cut] += part->local_shape[cut];
    if (!part->owned.empty() && number_of(*part) < number) at[cut] += part->local_shape[cut];
  }
  finding.index = IndexOf(at, whole);
  finding.coordinates = at;
  finding.message += fmt::format(" (in the whole it is {})", ElementName(*finding.index, whole));
}

const char* InWords(const std::string& why) {
  if (why == "batches") return "statistics of each rank's own batches, which differ";
  if (why == "own") return "each rank's own, such as a state of its random numbers";
  return "it differs, and each rank writes it itself, like running statistics";
}

/// Whether nothing is wrong if these differ; the judgement then says that they do.
bool MayDiffer(const std::string& stage, const std::string& name, const std::vector<Image>& images,
               Judgement& judgement) {
  const std::string why = WhyItVaries(images);
  const size_t alike = CountOfFirst(images);
  if (why.empty() || alike == images.size()) return false;
  const bool is_scratch = IsScratch(images);
  if (why == "rewritten" && !is_scratch && 2 * alike > images.size()) return false;
  const char* in_words = is_scratch ? "it is not saved, and steps write it" : InWords(why);
  std::string reason = fmt::format("{} at `{}` was not compared: {}", name, stage, in_words);
  if (why == "rewritten" && !is_scratch) {  // nobody said what for
    judgement.Inconclusive(std::move(reason));
  } else {
    judgement.NotCompared(std::move(reason));
  }
  return true;
}

/// Replicas against what most of them have; if that is as true of the first, against that, which
/// rank 0 is part of if it has the tensor.
void CheckReplicas(const Evidence& evidence, const PhaseEvidence& phase, const std::string& stage,
                   const std::string& name, std::vector<Image> images, Judgement& judgement) {
  if (images.size() < 2) return;
  images = CommonestFirst(std::move(images));
  if (MayDiffer(stage, name, images, judgement)) return;
  const std::vector<Image> others(images.begin() + 1, images.end());
  judgement.Compared(others.size());
  const Against against{Against::What::kRank, phase.phase, {}, images[0].Ranks().front()};
  const Comparison comparison{evidence, phase, stage, name, against, {}};
  for (Finding& finding : CompareAll(comparison, images[0], others)) {
    judgement.Found(std::move(finding));
  }
}

/// Parts that are not of one size, each against the same part of other replicas. Their elements are
/// named as they lie in the whole, which all parts together say.
void CheckUnevenParts(const Evidence& evidence, const PhaseEvidence& phase,
                      const std::string& stage, const std::string& name,
                      const std::vector<Image>& images, Judgement& judgement) {
  std::map<std::pair<std::vector<int64_t>, std::vector<int64_t>>, std::vector<Image>> same;
  for (const Image& image : images) {
    for (Image& part : PartsOf(image)) {
      const GroupsRecord* groups = part.parts[0].rank->Groups(*part.parts[0].descriptor);
      if (groups != nullptr) same[{groups->alike, part.shape}].push_back(std::move(part));
    }
  }
  for (const auto& [part, replicas] : same) {
    const size_t before = judgement.findings().size();
    CheckReplicas(evidence, phase, stage, name, replicas, judgement);
    for (size_t at = before; at < judgement.findings().size(); ++at) {
      PlaceInWhole(phase, stage, judgement.findings()[at]);
    }
  }
  judgement.Inconclusive(
      fmt::format("{} at `{}`: its parts differ in size: each was compared only with the same part "
                  "on other replicas",
                  name, stage));
}

/// Shards, summed, against the full tensor that rank 0 read.
void CheckShards(const Evidence& evidence, const PhaseEvidence& phase, const std::string& name,
                 const std::vector<Image>& images, Judgement& judgement) {
  if (!WhyItVaries(images).empty()) return;  // it may have changed since
  for (const Image& loaded : ImagesOf(phase, Stage::kLoaded, name)) {
    if (!loaded.defined || loaded.Ranks() != std::vector<int64_t>{0}) continue;
    judgement.Compared(images.size());
    const Against against{Against::What::kRank, phase.phase, Stage::kLoaded, 0};
    const Comparison comparison{evidence, phase, Stage::kReady, name, against, {}};
    for (Finding& finding : CompareAll(comparison, loaded, images)) {
      judgement.Found(std::move(finding));
    }
  }
}

void CheckStage(const Evidence& evidence, const PhaseEvidence& phase, const std::string& stage,
                Judgement& judgement) {
  FindingsByRank findings(phase, stage);
  for (const std::string& name : TensorNames(phase, stage)) {
    const Holders holders = HoldersOf(phase, stage, name);
    const std::vector<Image> images = DefinedImages(phase, stage, name, judgement);
    for (const std::vector<int64_t>& ranks : holders.tensors) {
      if (AreCaches(phase, ranks, stage, name)) {
        judgement.Inconclusive(
            fmt::format("{} at `{}` was not compared: a buffer that is not saved and differs in "
                        "size between ranks",
                        name, stage));
        continue;
      }
      const bool uneven = AreUnevenParts(phase, stage, name, ranks);
      CheckDescriptors(phase, ranks, stage, name, uneven, findings, judgement);
      CheckGroups(phase, ranks, stage, name, findings, judgement);
      CheckParts(phase, ranks, stage, name, findings, judgement);
      const std::vector<Image> replicas = ReplicasOf(ranks, images);
      if (uneven) {
        CheckUnevenParts(evidence, phase, stage, name, replicas, judgement);
        continue;
      }
      CheckReplicas(evidence, phase, stage, name, replicas, judgement);
      // Of several tensors of the name, rank 0 has read its own.
      const bool is_of_rank0 = holders.tensors.size() == 1 || ranks.front() == 0;
      if (stage == Stage::kReady && is_of_rank0)
        CheckShards(evidence, phase, name, replicas, judgement);
    }
    if (!holders.unstated.empty()) {
      judgement.Inconclusive(fmt::format(
          "{} at `{}` was not compared: nothing says which ranks hold the same", name, stage));
    }
  }
  CheckOptimizers(phase, stage, findings, judgement);
  CheckStateThere(phase, stage, findings, judgement);
  findings.Report(judgement);
}

/// At `ready` and `restored`, and at every stage of training, every replica has rank 0's
/// digest, the shards of a tensor add up to what rank 0 had at `loaded`, and dtype, shape,
/// placements, requires_grad and kind are alike on all ranks, as are the options and counters with
/// which optimizers step it. Where the evidence says which ranks
/// hold a tensor, all of it is asked of these.
void Check(const Evidence& evidence, Judgement& judgement) {
  for (const PhaseEvidence* phase : LoadPhases(evidence, judgement)) {
    for (const std::string& stage : FinalStages(*phase, judgement)) {
      CheckStage(evidence, *phase, stage, judgement);
    }
  }
  for (const auto& [phase, stage] : AllTrainStages(evidence, judgement)) {
    CheckStage(evidence, *phase, stage, judgement);
  }
  judgement.Skipped("a single rank that loads nothing has nothing to match");
}

const PropertyRegistration kRegistration{{
    .id = "sharding.ranks_match_rank0",
    .claim = "Replicas equal rank 0, the shards together equal what rank 0 loaded, the "
             "descriptors agree, and optimizers step a parameter alike.",
    .reads = {{LoadingPhases(), {Stage::kLoaded, Stage::kReady, Stage::kRestored}},
              {TrainingPhases(),
               {Stage::kReady, Stage::kStepped, Stage::kSaved, Stage::kRestored, Stage::kResumed}}},
    .tolerance = "bit-exact: copies",
    .source = "EvolvingLMMs-Lab/lmms-engine#185, pytorch/torchtitan#166, mosaicml/composer#2812",
    .killed_by = {"sharding.one_rank_unfilled", "sharding.shards_swapped",
                  "loading.init_seed_of_rank"},
    .check = Check,
}};

}  // namespace
}  // namespace shardproof::sharding::ranks_match_rank0
