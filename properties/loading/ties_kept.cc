// loading.ties_kept: tied tensors stay tied, nothing else shares memory, and a tie is saved once.
#include <fmt/format.h>

#include <map>
#include <optional>
#include <set>

#include "verify/verdict/expectation.h"
#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"

namespace shardproof::loading::ties_kept {
namespace {

bool SharesStorage(const TensorDescriptor& a, const TensorDescriptor& b) {
  if (a.alias_group >= 0 && a.alias_group == b.alias_group) return true;
  // Empty shards have no storage to share; that they are one object is all there is to see.
  return a.OwnedElements() == 0 && b.OwnedElements() == 0 && a.identity >= 0 &&
         a.identity == b.identity;
}

void CheckTied(const Ties& ties, const RankEvidence& rank, const std::string& stage,
               FindingsByRank& findings, Judgement& judgement) {
  for (const std::vector<std::string>& group : ties) {
    const TensorDescriptor* first = FindTensor(rank, stage, group[0]).descriptor;
    for (size_t i = 1; i < group.size(); ++i) {
      const TensorDescriptor* other = FindTensor(rank, stage, group[i]).descriptor;
      if (first == nullptr || other == nullptr) {
        judgement.Inconclusive(
            fmt::format("rank {} lacks {} or {} at `{}`", rank.rank, group[0], group[i], stage));
        continue;
      }
      judgement.Compared();
      if (!SharesStorage(*first, *other)) {
        findings.Add(group[i], "untied",
                     fmt::format("it no longer shares memory with {}", group[0]), {rank.rank},
                     {.other = group[0]});
      }
    }
  }
}

/// Names that share storage. models: the objects among them that the model itself has.
struct Alias {
  std::vector<std::string> names;
  std::set<int64_t> models;
};

/// A framework may register what it does not train once more, under a name of its own, as PEFT does
/// with the embeddings that come after its prompts.
bool IsAnotherName(const TensorDescriptor& descriptor, const Alias& alias) {
  return descriptor.also && !descriptor.requires_grad && descriptor.identity >= 0 &&
         alias.models.contains(descriptor.identity);
}

/// Every set of names that share storage must lie within one expected tie. What a framework has
/// besides the model, such as one adapter of two tied layers, it may tie among itself.
void CheckOthers(const Ties& ties, const RankEvidence& rank, const std::string& stage,
                 FindingsByRank& findings, Judgement& judgement) {
  std::map<int64_t, Alias> aliases;
  for (const auto& [name, state] : rank.Stage(stage)->tensors) {
    const TensorDescriptor& descriptor = rank.Descriptor(state);
    judgement.Compared();
    if (descriptor.alias_group < 0 || descriptor.OwnedElements() == 0) continue;
    Alias& alias = aliases[descriptor.alias_group];
    alias.names.push_back(name);
    if (!descriptor.also) alias.models.insert(descriptor.identity);
  }
  for (auto& [number, alias] : aliases) {
    if (alias.models.empty()) continue;
    std::erase_if(alias.names, [&](const std::string& name) {
      return IsAnotherName(*FindTensor(rank, stage, name).descriptor, alias);
    });
    const std::string& first = alias.names[0];
    const std::vector<std::string> tied = TieGroup(ties, first);
    const std::set<std::string> allowed(tied.begin(), tied.end());
    for (const std::string& name : alias.names) {
      if (allowed.contains(name)) continue;
      findings.Add(name, "aliased",
                   fmt::format("it shares memory with {}, but the two are not tied", first),
                   {rank.rank}, {.other = first});
    }
  }
}

void CheckSaved(const Evidence& evidence, Judgement& judgement) {
  for (const auto& [of, saved] : SavedModels(evidence.oracle)) {
    const PhaseEvidence* phase = evidence.Phase(of);
    if (phase == nullptr || !saved->error.empty()) continue;
    for (const std::vector<std::string>& group : evidence.oracle.ties) {
      std::vector<std::string> names;
      for (const std::string& name : group) {
        if (saved->tensors.contains(name)) names.push_back(name);
      }
      judgement.Compared();
      if (names.size() == 1) continue;
      judgement.Found(FindingAt(
          *phase, Stage::kSaved, group[0], names.empty() ? "not-saved" : "saved-twice", {},
          names.empty() ? "none of the tied names is in the saved checkpoint"
                        : fmt::format("one tensor is saved under {} names: {}", names.size(),
                                      ListSome(names)),
          {.other = names.empty() ? "" : names[1]}));
    }
  }
}

void CheckStage(const Ties& ties, const PhaseEvidence& phase, const std::string& stage,
                Judgement& judgement) {
  FindingsByRank findings(phase, stage);
  for (const RankEvidence& rank : phase.ranks) {
    if (rank.Stage(stage) == nullptr) continue;
    CheckTied(ties, rank, stage, findings, judgement);
    CheckOthers(ties, rank, stage, findings, judgement);
  }
  findings.Report(judgement);
}

/// What is known of the model; of one that nobody knows what its ranks say themselves, if there are
/// several to hold against each other.
std::optional<Ties> KnownTies(const Evidence& evidence) {
  if (!evidence.oracle.declared.empty()) return evidence.oracle.ties;
  const PhaseEvidence* phase = evidence.Phase(Phase::kValues);
  if (phase == nullptr || phase->ranks.size() < 2) return {};
  return TiesOfJob(*phase);
}

/// On every rank at `ready` and `restored`, and at every stage of training, the sets of names
/// that share storage are exactly the ties of the model; each tie has one entry in a saved
/// checkpoint.
void Check(const Evidence& evidence, Judgement& judgement) {
  const std::optional<Ties> known = KnownTies(evidence);
  if (!known) {
    judgement.Inconclusive("nothing says which tensors of the model are tied");
    return;
  }
  const Ties& ties = *known;
  for (const PhaseEvidence* phase : LoadPhases(evidence, judgement)) {
    for (const std::string& stage : FinalStages(*phase, judgement)) {
      CheckStage(ties, *phase, stage, judgement);
    }
  }
  for (const PhaseEvidence* phase : TrainPhases(evidence)) {
    for (const std::string& stage : TrainStages(*phase, "model", judgement)) {
      CheckStage(ties, *phase, stage, judgement);
    }
  }
  CheckSaved(evidence, judgement);
}

const PropertyRegistration kRegistration{{
    .id = "loading.ties_kept",
    .claim = "Tied tensors stay tied, nothing else shares memory, and a tie is saved once.",
    .reads = {{LoadingPhases(), {Stage::kReady, Stage::kRestored}, "saved checkpoints"},
              {TrainingPhases(),
               {Stage::kReady, Stage::kStepped, Stage::kSaved, Stage::kRestored, Stage::kResumed}}},
    .tolerance = "none: sets",
    .source = "NVIDIA/Megatron-LM#5790, OpenRLHF/OpenRLHF#1316, huggingface/transformers#27314",
    .killed_by = {"loading.tie_broken_by_materialize", "checkpoint.tie_saved_twice"},
    .check = Check,
}};

}  // namespace
}  // namespace shardproof::loading::ties_kept
