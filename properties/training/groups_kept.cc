// training.groups_kept: sharding a model does not change what its optimizer was told.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"

namespace shardproof::training::groups_kept {
namespace {

/// The stages before any step at which the rank's optimizer was observed, in their order. (What was
/// restored is another optimizer, which is held against the saved one elsewhere.)
std::vector<const StageRecord*> Unstepped(const RankEvidence& rank) {
  std::vector<const StageRecord*> stages;
  for (const StageRecord& record : rank.stages) {
    const bool other = record.name == Stage::kRestored || record.name == Stage::kResumed;
    const bool claims = record.optimizer && record.optimizer->claims;
    if (claims && record.step == 0 && !other) stages.push_back(&record);
  }
  return stages;
}

std::string Shown(const std::map<std::string, std::string>& options) {
  std::vector<std::string> words;
  for (const auto& [name, value] : options) words.push_back(name + " = " + value);
  return words.empty() ? "none" : fmt::format("{}", fmt::join(words, ", "));
}

/// The parameters of a group by the names that they had when the optimizer was made: also those
/// whose object the model has no more.
std::vector<std::string> Members(const OptimizerRecord& optimizer, size_t group) {
  std::vector<std::string> names = optimizer.groups[group].parameters;
  for (const Stranger& stranger : optimizer.strangers) {  // in the order of their places
    if (stranger.group != static_cast<int64_t>(group)) continue;
    const auto place = std::min<int64_t>(stranger.index, static_cast<int64_t>(names.size()));
    names.insert(names.begin() + place, stranger.was);
  }
  return names;
}

void Compare(const StageRecord& earlier, const StageRecord& later, int64_t rank,
             FindingsByRank& findings, Judgement& judgement) {
  const OptimizerRecord& first = *earlier.optimizer;
  const OptimizerRecord& now = *later.optimizer;
  const Facts facts{.against = {.what = Against::What::kEarlier, .stage = earlier.Key()}};
  judgement.Compared();
  if (now.groups.size() != first.groups.size()) {
    findings.Add("", "groups",
                 fmt::format("the optimizer had {} groups, and has {}", first.groups.size(),
                             now.groups.size()),
                 {rank}, facts);
    return;
  }
  for (size_t group = 0; group < first.groups.size(); ++group) {
    judgement.Compared(2);
    const auto& options = now.groups[group].options;
    if (options != first.groups[group].options) {
      findings.Add("", "options",
                   fmt::format("group {} had the options {}, and has {}", group,
                               Shown(first.groups[group].options), Shown(options)),
                   {rank}, facts);
    }
    const std::vector<std::string> had = Members(first, group);
    const std::vector<std::string> has = Members(now, group);
    if (had == has) continue;
    const auto differs = std::mismatch(had.begin(), had.end(), has.begin(), has.end());
    const std::string& name = differs.first != had.end() ? *differs.first : *differs.second;
    findings.Add(
        name, "members",
        fmt::format("group {} had {} parameters and has {}: the first that differs is number "
                    "{}",
                    group, had.size(), has.size(), differs.first - had.begin()),
        {rank}, facts);
  }
}

/// An optimizer that was made before its model was sharded has the same groups afterwards,
/// before any step: as many, with the same options and the same parameters in the same order.
void Check(const Evidence& evidence, Judgement& judgement) {
  for (const PhaseEvidence& phase : evidence.phases) {
    std::vector<std::string> keys;
    std::map<std::string, FindingsByRank> findings;
    for (const RankEvidence& rank : phase.ranks) {
      const std::vector<const StageRecord*> stages = Unstepped(rank);
      for (size_t i = 1; i < stages.size(); ++i) {
        const std::string key = stages[i]->Key();
        if (findings.emplace(key, FindingsByRank(phase, key)).second) keys.push_back(key);
        Compare(*stages[0], *stages[i], rank.rank, findings.at(key), judgement);
      }
    }
    for (const std::string& key : keys) findings.at(key).Report(judgement);
  }
  judgement.Skipped("no optimizer was observed at two stages before its first step");
}

const PropertyRegistration kRegistration{{
    .id = "training.groups_kept",
    .claim = "Sharding a model changes no parameter group of its optimizer: not its "
             "options, its parameters or their order.",
    .reads = {{EveryPhase(), {}, "the optimizer at two stages before its first step"}},
    .tolerance = "none",
    .source = "modelscope/twinkle#117; torch.optim.Optimizer.param_groups, whose order is what "
              "a state dict counts by",
    .killed_by = {"training.groups_merged", "training.group_order_of_names"},
    .check = Check,
    .case_needs = R"({"optimizer": "before-sharding"})",
}};

}  // namespace
}  // namespace shardproof::training::groups_kept
