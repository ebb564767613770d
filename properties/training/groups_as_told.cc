// training.groups_as_told: the optimizer works by the options that the case gives it.
#include <fmt/format.h>

#include <algorithm>

#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"

namespace shardproof::training::groups_as_told {
namespace {

/// Of the two groups: matrices, and the rest.
std::map<std::string, std::string> Told(const TrainingCase& training, size_t group, int64_t step) {
  double rate = group == 0 ? training.learning_rate : training.learning_rate / 2;
  for (int64_t taken = 0; taken < step; ++taken) rate *= training.rate_decay;
  return {{"lr", fmt::format("{}", rate)},
          {"betas", "(0.9, 0.999)"},  // torch.optim.AdamW's defaults
          {"eps", fmt::format("{}", training.epsilon)},
          {"weight_decay", fmt::format("{}", group == 0 ? training.weight_decay : 0.0)}};
}

class StageCheck {
 public:
  StageCheck(const Evidence& evidence, FindingsByRank& findings, Judgement& judgement)
      : evidence_(evidence), findings_(findings), judgement_(judgement) {}

  void Run(const StageRecord& record, int64_t rank) {
    const auto& groups = record.optimizer->groups;
    judgement_.Compared();
    if (groups.size() != 2) {
      findings_.Add(
          "", "groups",
          fmt::format("the optimizer has {} groups: expected matrices and the rest", groups.size()),
          {rank});
      return;
    }
    for (size_t i = 0; i < groups.size(); ++i) {
      CheckOptions(groups[i], i, record.step, rank);
      CheckMembers(groups[i], i, rank);
    }
  }

 private:
  void CheckOptions(const OptimizerGroup& group, size_t index, int64_t step, int64_t rank) {
    for (const auto& [option, told] : Told(evidence_.test_case.training, index, step)) {
      judgement_.Compared();
      const auto found = group.options.find(option);
      const std::string seen = found == group.options.end() ? "none" : found->second;
      if (seen == told) continue;
      findings_.Add("", "option " + option,
                    fmt::format("group {} has {} = {}: expected {} after {} steps", index, option,
                                seen, told, step),
                    {rank}, {.option = option});
    }
  }

  void CheckMembers(const OptimizerGroup& group, size_t index, int64_t rank) {
    for (const std::string& name : group.parameters) {
      const auto declared = evidence_.oracle.declared.find(name);
      if (declared == evidence_.oracle.declared.end()) continue;
      judgement_.Compared();
      const size_t dims = declared->second.shape.size();
      if ((dims >= 2) == (index == 0)) continue;
      findings_.Add(name, "member",
                    fmt::format("it has {} dims and is in group {}, of {}", dims, index,
                                index == 0 ? "matrices" : "what is no matrix"),
                    {rank});
    }
  }

  const Evidence& evidence_;
  FindingsByRank& findings_;
  Judgement& judgement_;
};

/// At every stage of a training job that shows its optimizer the groups have the options of the
/// case, at the rate of so many steps, and the members that they are for.
void Check(const Evidence& evidence, Judgement& judgement) {
  if (!IsReference(evidence)) {
    judgement.Skipped("a case tells a subject no options");
    return;
  }
  if (!evidence.test_case.model.checkpoint.empty()) {
    judgement.Skipped("a checkpoint may have options of its own");
    return;
  }
  for (const PhaseEvidence* phase : TrainPhases(evidence)) {
    std::map<std::string, FindingsByRank> findings;
    for (const RankEvidence& rank : phase->ranks) {
      for (const StageRecord& record : rank.stages) {
        if (!record.optimizer) continue;
        const std::string key = record.Key();
        auto& of_stage = findings.try_emplace(key, *phase, key).first->second;
        StageCheck(evidence, of_stage, judgement).Run(record, rank.rank);
      }
    }
    for (const auto& [key, of_stage] : findings) of_stage.Report(judgement);
  }
  judgement.Skipped("no steps are taken");
}

const PropertyRegistration kRegistration{{
    .id = "training.groups_as_told",
    .claim = "The reference's optimizer has the groups and options that the case gives it, and its "
             "learning rates decay with each step.",
    .reads = {{TrainingPhases(), {}, "the optimizer at every stage"}},
    .tolerance = "none: the shortest text of each number",
    .source = "fields training/learning_rate, rate_decay, weight_decay and epsilon of a case; "
              "defaults of torch.optim.AdamW",
    .killed_by = {"training.everything_decays", "training.one_group_keeps_its_rate"},
    .check = Check,
    .capabilities = {"train"},
}};

}  // namespace
}  // namespace shardproof::training::groups_as_told
