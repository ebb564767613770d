// training.groups_as_plain: the optimizer of a sharded model is told what that of the plain twin
// is.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"

namespace shardproof::training::groups_as_plain {
namespace {

using Options = std::map<std::string, std::string>;

std::map<std::string, const Options*> OptionsOf(const std::vector<OptimizerGroup>& groups) {
  std::map<std::string, const Options*> options;
  for (const OptimizerGroup& group : groups) {
    for (const std::string& name : group.parameters) options[name] = &group.options;
  }
  return options;
}

/// The optimizer before any step, if the rank shows it.
const StageRecord* Unstepped(const RankEvidence& rank) {
  for (const StageRecord& record : rank.stages) {
    if (record.optimizer && record.step == 0 && record.name == Stage::kReady) return &record;
  }
  return nullptr;
}

/// What differs in the same way is one finding, however many parameters it concerns.
struct Difference {
  std::string option, expected, seen;
  bool operator<(const Difference& other) const {
    return std::tie(option, expected, seen) < std::tie(other.option, other.expected, other.seen);
  }
};
using Differences = std::map<Difference, std::vector<std::string>>;

Differences Compare(const std::vector<OptimizerGroup>& plain,
                    const std::vector<OptimizerGroup>& seen, Judgement& judgement) {
  Differences differences;
  const auto has = OptionsOf(seen);
  for (const auto& [name, wanted] : OptionsOf(plain)) {
    const auto own = has.find(name);
    judgement.Compared();
    if (own == has.end()) {
      differences[{"", "", ""}].push_back(name);
      continue;
    }
    for (const auto& [option, value] : *wanted) {
      const auto found = own->second->find(option);
      // What a framework's optimizer does not know, it was not told.
      if (found == own->second->end() || found->second == value) continue;
      differences[{option, value, found->second}].push_back(name);
    }
  }
  return differences;
}

void Report(const Differences& differences, int64_t rank, FindingsByRank& findings) {
  for (const auto& [one, names] : differences) {
    const Facts facts{.against = {Against::What::kTwin}, .option = one.option};
    const std::string of = fmt::format("{} parameters ({})", names.size(), ListSome(names));
    findings.Add(names[0], one.option.empty() ? "not-held" : "option " + one.option,
                 one.option.empty()
                     ? fmt::format("the optimizer lacks {} that the plain twin's has", of)
                     : fmt::format("{} is {} for {}, and {} in the plain twin's optimizer",
                                   one.option, one.seen, of, one.expected),
                 {rank}, facts);
  }
}

/// At `ready` the optimizer has every parameter that the twin's has, each with the same options,
/// compared by value.
void Check(const Evidence& evidence, Judgement& judgement) {
  if (!evidence.oracle.twin || evidence.oracle.twin->groups.empty()) {
    judgement.Skipped("the subject's plain(case) makes no optimizer to compare with");
    return;
  }
  bool any = false;
  for (const Phase each : {Phase::kValues, Phase::kTrain}) {
    const PhaseEvidence* phase = evidence.Phase(each);
    if (phase == nullptr || !phase->skipped.empty()) continue;
    std::map<std::string, FindingsByRank> findings;
    for (const RankEvidence& rank : phase->ranks) {
      const StageRecord* record = Unstepped(rank);
      if (record == nullptr) continue;
      any = true;
      const std::string key = record->Key();
      FindingsByRank& of_stage = findings.emplace(key, FindingsByRank(*phase, key)).first->second;
      Report(Compare(evidence.oracle.twin->groups, record->optimizer->groups, judgement), rank.rank,
             of_stage);
    }
    for (const auto& [key, of_stage] : findings) of_stage.Report(judgement);
  }
  if (!any) judgement.Inconclusive("no rank showed its optimizer at `ready`");
}

const PropertyRegistration kRegistration{{
    .id = "training.groups_as_plain",
    .claim = "The optimizer has the parameters that the plain twin's has, each with the same "
             "options.",
    .reads = {{{Phase::kValues, Phase::kTrain}, {}, "the optimizer at `ready`, the plain twin"}},
    .tolerance = "none: equality of values",
    .source = "torch.optim.Optimizer.param_groups; pytorch/pytorch#136929 (attributes that decide "
              "about groups are lost as parameters are sharded)",
    .killed_by = {"subject.groups_by_a_lost_attribute"},
    .check = Check,
    .only_subjects = true,
}};

}  // namespace
}  // namespace shardproof::training::groups_as_plain
