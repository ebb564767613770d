#include "verify/verdict/optimizers_alike.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "verify/verdict/holders.h"

namespace shardproof {
namespace {

/// Whether a number is one that an optimizer was told, or one that it keeps.
enum class Of { kOptions, kState };

/// What ranks say of one number, in their order.
using Said = std::vector<std::pair<int64_t, std::string>>;

/// Whether a value, as Python shows it, is a number, a truth or a tuple of these. What else there
/// is may differ for reasons of its own: names, objects with their addresses.
bool IsOfNumbers(const std::string& value) {
  if (value == "True" || value == "False" || value == "None") return true;
  if (value.empty() || value.find_first_of("0123456789") == std::string::npos) return false;
  return value.find_first_not_of("0123456789+-.e(), ") == std::string::npos;
}

/// Whether it is a number with a fraction: of a rank's own, perhaps, such as its loss.
bool IsFraction(const std::string& value) {
  return IsOfNumbers(value) && value.find_first_of(".e") != std::string::npos;
}

/// Which of several ways the same step is computed in.
bool IsOfImplementation(const std::string& option) {
  return option == "foreach" || option == "fused" || option == "capturable" ||
         option == "differentiable";
}

/// Collects what differs; of parameters of which the same is to be said, the first is named.
class Unlike {
 public:
  void Look(Of of, const std::string& tensor, const std::string& what, const Said& said,
            Judgement& judgement) {
    std::map<std::string, size_t> counts;
    for (const auto& [rank, value] : said) ++counts[value];
    judgement.Compared(said.size() - 1);
    if (counts.size() == 1) return;
    if (of == Of::kState && IsFraction(said[0].second)) {
      judgement.NotCompared(fmt::format(
          "{} of {}, a number that each rank's optimizer keeps, such as its loss, differs", what,
          tensor));
      return;
    }
    const auto* expected = &said[0];  // the first of those that most ranks say
    for (const auto& each : said) {
      if (counts[each.second] > counts[expected->second]) expected = &each;
    }
    std::map<std::string, std::vector<int64_t>> others;
    for (const auto& [rank, value] : said) {
      if (value != expected->second) others[value].push_back(rank);
    }
    for (const auto& [value, ranks] : others) {
      Place& place = places_.try_emplace({what, value, expected->second, expected->first, ranks})
                         .first->second;
      if (place.count++ == 0) place.first = tensor;
    }
  }

  void Report(const PhaseEvidence& phase, FindingsByRank& findings) const {
    for (const auto& [key, place] : places_) {
      const auto& [what, value, expected, against, ranks] = key;
      const std::string more =
          place.count > 1 ? fmt::format("; the same holds for {} more parameters", place.count - 1)
                          : "";
      findings.Add(
          place.first, "unlike-option",
          fmt::format("its {} is {}, on rank {} it is {}{}",
                      what == "steps" ? "count of steps" : what, value, against, expected, more),
          ranks, {.against = {Against::What::kRank, phase.phase, {}, against}, .option = what});
    }
  }

 private:
  struct Place {
    std::string first;
    size_t count = 0;
  };
  using Key = std::tuple<std::string, std::string, std::string, int64_t, std::vector<int64_t>>;
  std::map<Key, Place> places_;
};

/// By parameter and by what is said of it, what each rank says.
using Table = std::map<std::string, std::map<std::string, std::map<int64_t, std::string>>>;

void Read(const OptimizerRecord& optimizer, int64_t rank, std::map<Of, Table>& tables) {
  for (const OptimizerGroup& group : optimizer.groups) {
    for (const auto& [option, value] : group.options) {
      if (!IsOfNumbers(value) || IsOfImplementation(option)) continue;
      const std::string what =
          "option " + option +
          (OptimizerOf(group).empty() ? "" : " of optimizer " + OptimizerOf(group));
      for (const std::string& name : group.parameters) {
        tables[Of::kOptions][name][what].emplace(rank, value);
      }
    }
  }
  for (const auto& [name, value] : optimizer.values) {
    const size_t dot = name.rfind('.');
    if (dot == std::string::npos || !IsOfNumbers(value)) continue;
    tables[Of::kState][name.substr(0, dot)][name.substr(dot + 1)].emplace(rank, value);
  }
}

Said SaidBy(const std::vector<int64_t>& ranks, const std::map<int64_t, std::string>& by_rank) {
  Said said;
  for (const int64_t rank : ranks) {
    const auto value = by_rank.find(rank);
    if (value != by_rank.end()) said.emplace_back(rank, value->second);
  }
  return said;
}

/// Of which parameters each rank's optimizer has state at a stage.
class States {
 public:
  States(const PhaseEvidence& phase, const std::string& stage) : phase_(phase), stage_(stage) {
    for (const RankEvidence& rank : phase.ranks) {
      const StageRecord* record = rank.Stage(stage);
      if (record == nullptr || record->of != "optimizer") continue;
      model_ = record->ModelKey();
      std::set<std::string>& of_rank = of_.try_emplace(rank.rank).first->second;
      for (const auto& [name, state] : record->tensors) of_rank.insert(ParameterOf(rank, name));
    }
  }

  /// The ranks that have no such state and should have, and in `having` those that have it.
  std::vector<int64_t> Lacking(const std::string& name, std::vector<int64_t>& having) const {
    const Holders holders = HoldersOf(phase_, stage_, name);
    std::vector<int64_t> lacking;
    if (holders.everywhere || !holders.unstated.empty()) return lacking;
    for (const std::vector<int64_t>& ranks : holders.tensors) {
      having.insert(having.end(), ranks.begin(), ranks.end());
    }
    if (having.empty()) return lacking;
    const std::string parameter = ParameterOf(At(having[0]), name);
    for (const int64_t rank : holders.expected) {
      if (rank >= phase_.WorldSize() || !of_.contains(rank)) continue;
      if (std::find(having.begin(), having.end(), rank) != having.end()) continue;
      const TensorDescriptor* own = FindTensor(At(rank), model_, parameter).descriptor;
      if (own != nullptr && !own->owned.empty()) lacking.push_back(rank);
    }
    const bool divided = having.size() <= lacking.size() &&
                         std::all_of(lacking.begin(), lacking.end(), [&](int64_t rank) {
                           return std::all_of(having.begin(), having.end(), [&](int64_t owner) {
                             return HasAlone(owner, name) && HasMoreThan(rank, owner);
                           });
                         });
    return divided ? std::vector<int64_t>() : lacking;
  }

 private:
  const RankEvidence& At(int64_t rank) const { return phase_.ranks[static_cast<size_t>(rank)]; }

  /// The longest name before a dot that is a parameter's.
  std::string ParameterOf(const RankEvidence& rank, const std::string& name) const {
    for (size_t dot = name.rfind('.'); dot != std::string::npos && dot > 0;
         dot = name.rfind('.', dot - 1)) {
      const std::string before = name.substr(0, dot);
      if (FindTensor(rank, model_, before).descriptor != nullptr) return before;
    }
    return "";
  }

  /// Whether what a rank has is no part that others complete.
  bool HasAlone(int64_t rank, const std::string& name) const {
    const GroupsRecord* groups = At(rank).Groups(*FindTensor(At(rank), stage_, name).descriptor);
    return groups != nullptr && groups->whole.size() == 1;
  }

  /// Whether a rank has state of a parameter of which another one has none.
  bool HasMoreThan(int64_t rank, int64_t other) const {
    const std::set<std::string>& own = of_.at(rank);
    const std::set<std::string>& others = of_.at(other);
    return std::any_of(own.begin(), own.end(),
                       [&](const std::string& name) { return !others.contains(name); });
  }

  const PhaseEvidence& phase_;
  const std::string& stage_;
  std::string model_;
  std::map<int64_t, std::set<std::string>> of_;
};

}  // namespace

std::string OptimizerOf(const OptimizerGroup& group) {
  const auto option = group.options.find("<optimizer>");
  return option == group.options.end() ? "" : option->second;
}

std::set<std::string> HeldBy(const OptimizerRecord& optimizer) {
  std::set<std::string> held;
  for (const OptimizerGroup& group : optimizer.groups) {
    held.insert(group.parameters.begin(), group.parameters.end());
  }
  return held;
}

void CheckOptimizers(const PhaseEvidence& phase, const std::string& stage, FindingsByRank& findings,
                     Judgement& judgement) {
  std::map<Of, Table> tables;
  std::string model;
  std::vector<int64_t> all;
  for (const RankEvidence& rank : phase.ranks) {
    const StageRecord* record = rank.Stage(stage);
    if (record == nullptr || !record->optimizer) continue;
    model = record->ModelKey();
    all.push_back(rank.rank);
    Read(*record->optimizer, rank.rank, tables);
  }
  Unlike unlike;
  for (const auto& [of, table] : tables) {
    for (const auto& [name, said_of] : table) {
      // What is said of an optimizer as a whole, all that say it have in common.
      const bool is_of_all = name.starts_with("<optimizer");
      const std::vector<std::vector<int64_t>> groups = is_of_all
                                                           ? std::vector<std::vector<int64_t>>{all}
                                                           : HoldersOf(phase, model, name).tensors;
      for (const std::vector<int64_t>& ranks : groups) {
        for (const auto& [what, by_rank] : said_of) {
          const Said said = SaidBy(ranks, by_rank);
          if (said.size() > 1) unlike.Look(of, name, what, said, judgement);
        }
      }
    }
  }
  unlike.Report(phase, findings);
}

void CheckStateThere(const PhaseEvidence& phase, const std::string& stage, FindingsByRank& findings,
                     Judgement& judgement) {
  if (!stage.ends_with(".optimizer")) return;
  const States states(phase, stage);
  for (const std::string& name : TensorNames(phase, stage)) {
    std::vector<int64_t> having;
    const std::vector<int64_t> lacking = states.Lacking(name, having);
    judgement.Compared();
    if (lacking.empty()) continue;
    findings.Add(name, "absent",
                 fmt::format("there is no such state, which rank {} has", having[0]), lacking,
                 {.against = {Against::What::kRank, phase.phase, {}, having[0]}});
  }
}

}  // namespace shardproof
