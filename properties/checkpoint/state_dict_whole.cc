// checkpoint.state_dict_whole: what a framework gives for saving is all of the model, as it is.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "verify/verdict/expectation.h"
#include "verify/verdict/locate.h"
#include "verify/verdict/select.h"

namespace shardproof::checkpoint::state_dict_whole {
namespace {

class StateDictCheck {
 public:
  StateDictCheck(const Evidence& evidence, const PhaseEvidence& phase, const StageRecord& stage,
                 Judgement& judgement)
      : evidence_(evidence),
        phase_(phase),
        key_(stage.Key()),
        model_key_(stage.ModelKey()),
        judgement_(judgement) {}

  void Run() {
    const std::vector<std::string> there = TensorNames(phase_, key_);
    const std::set<std::string> names(there.begin(), there.end());
    if (evidence_.oracle.declared.empty()) {
      // Of a model that nobody declared, as that of a script, no name is known to be missing.
      for (const std::string& name : names) CheckValue(name);
      return;
    }
    std::set<std::string> accounted;
    for (const auto& [name, declared] : evidence_.oracle.declared) {
      const std::vector<std::string> group = TieGroup(evidence_.oracle, name);
      if (!IsPersistent(evidence_.oracle, name)) continue;
      accounted.insert(group.begin(), group.end());
      if (group.front() == name) CheckGroup(group, names);
    }
    for (const std::string& name : names) {
      judgement_.Compared();
      if (accounted.contains(name)) continue;
      judgement_.Found(FindingAt(phase_, key_, name, "extra", {},
                                 "the model has no persistent tensor of that name"));
    }
  }

 private:
  void CheckGroup(const std::vector<std::string>& group, const std::set<std::string>& names) {
    judgement_.Compared();
    bool any = false;
    for (const std::string& name : group) {
      if (!names.contains(name)) continue;
      any = true;
      CheckValue(name);
    }
    if (!any) {
      judgement_.Found(
          FindingAt(phase_, key_, group.front(), "absent", {}, "no rank's state dict has it"));
    }
  }

  void CheckValue(const std::string& name) {
    const std::vector<Image> seen = DefinedImages(phase_, key_, name, judgement_);
    const std::vector<Image> held = DefinedImages(phase_, model_key_, name, judgement_);
    if (held.empty()) {
      judgement_.Inconclusive(
          fmt::format("the model was not observed at `{}` of phase {}", model_key_, phase_.name()));
      return;
    }
    judgement_.Compared(seen.size());
    const Against against{Against::What::kModel, phase_.phase, model_key_};
    const Comparison comparison{evidence_, phase_, key_, name, against, {}};
    std::map<size_t, std::vector<Image>> seen_of;  // by which of `held` it is to equal
    for (const Image& each : seen) seen_of[OfItsRanks(held, each)].push_back(each);
    for (const auto& [number, images] : seen_of) {
      for (Finding& finding : CompareAll(comparison, held[number], images)) {
        judgement_.Found(std::move(finding));
      }
    }
  }

  /// What the ranks of a state dict hold themselves: others may hold a model of their own.
  static size_t OfItsRanks(const std::vector<Image>& held, const Image& seen) {
    const std::vector<int64_t> ranks = seen.Ranks();
    for (size_t i = 0; i < held.size(); ++i) {
      const std::vector<int64_t> own = held[i].Ranks();
      if (std::find_first_of(own.begin(), own.end(), ranks.begin(), ranks.end()) != own.end()) {
        return i;
      }
    }
    return 0;
  }

  const Evidence& evidence_;
  const PhaseEvidence& phase_;
  std::string key_;
  std::string model_key_;
  Judgement& judgement_;
};

/// A state dict that is observed has every persistent tensor of the model, under one name at
/// least if it is tied, with the value that the model has at that stage; and no other. Of a model
/// that nobody declared, values alone are judged.
void Check(const Evidence& evidence, Judgement& judgement) {
  std::string first;
  for (const PhaseEvidence& phase : evidence.phases) {
    if (phase.facts().mode != RunMode::kValues) continue;
    std::set<std::string> judged;
    for (const RankEvidence& rank : phase.ranks) {
      for (const StageRecord& stage : rank.stages) {
        if (stage.of != "state_dict" || !judged.insert(stage.Key()).second) continue;
        StateDictCheck(evidence, phase, stage, judgement).Run();
        if (first.empty()) first = stage.Key();
      }
    }
  }
  if (!first.empty() && evidence.oracle.declared.empty()) {  // a script may save a part of it
    judgement.NotCompared(
        fmt::format("whether `{}` has all of the model's tensors is not known: no checkpoint or "
                    "config says which these are",
                    first));
  }
  judgement.Skipped("no state dict was observed");
}

const PropertyRegistration kRegistration{{
    .id = "checkpoint.state_dict_whole",
    .claim = "A state dict holds every persistent tensor of the model, bit for bit.",
    .reads = {{EveryPhase(), {}, "state dicts"}},
    .tolerance = "bit-exact: a state dict refers to or copies the model's tensors",
    .source = "deepspeedai/DeepSpeed#3090; torch.nn.Module.state_dict documentation",
    .killed_by = {"subject.state_dict_drops_a_key"},
    .check = Check,
    .only_subjects = true,
}};

}  // namespace
}  // namespace shardproof::checkpoint::state_dict_whole
