#include "verify/verdict/optimizers_alike.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "verify/verdict/holders.h"

namespace shardproof {
namespace {

/// What ranks say of one number, in their order.
using Said = std::vector<std::pair<int64_t, std::string>>;

/// Whether a value, as Python shows it, is a number, a truth or a tuple of these. What else there
/// is may differ for reasons of its own: names, objects with their addresses.
bool IsOfNumbers(const std::string& value) {
  if (value == "True" || value == "False" || value == "None") return true;
  if (value.empty() || value.find_first_of("0123456789") == std::string::npos) return false;
  return value.find_first_not_of("0123456789+-.e(), ") == std::string::npos;
}

/// Which of several ways the same step is computed in.
bool IsOfImplementation(const std::string& option) {
  return option == "foreach" || option == "fused" || option == "capturable" ||
         option == "differentiable";
}

/// Collects what differs; of parameters of which the same is to be said, the first is named.
class Unlike {
 public:
  void Look(const std::string& tensor, const std::string& what, const Said& said,
            Judgement& judgement) {
    std::map<std::string, size_t> counts;
    for (const auto& [rank, value] : said) ++counts[value];
    judgement.Compared(said.size() - 1);
    if (counts.size() == 1) return;
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
          fmt::format("its {} is {}, on rank {} it is {}{}", what, value, against, expected, more),
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

void Read(const OptimizerRecord& optimizer, int64_t rank, Table& table) {
  for (const OptimizerGroup& group : optimizer.groups) {
    for (const auto& [option, value] : group.options) {
      if (!IsOfNumbers(value) || IsOfImplementation(option)) continue;
      for (const std::string& name : group.parameters) {
        table[name]["option " + option].emplace(rank, value);
      }
    }
  }
  for (const auto& [name, value] : optimizer.values) {
    const size_t dot = name.rfind('.');
    if (dot == std::string::npos || !IsOfNumbers(value)) continue;
    table[name.substr(0, dot)][name.substr(dot + 1)].emplace(rank, value);
  }
}

}  // namespace

void CheckOptimizers(const PhaseEvidence& phase, const std::string& stage, FindingsByRank& findings,
                     Judgement& judgement) {
  Table table;
  std::string model;
  std::vector<int64_t> all;
  for (const RankEvidence& rank : phase.ranks) {
    const StageRecord* record = rank.Stage(stage);
    if (record == nullptr || !record->optimizer) continue;
    model = record->ModelKey();
    all.push_back(rank.rank);
    Read(*record->optimizer, rank.rank, table);
  }
  Unlike unlike;
  for (const auto& [name, said_of] : table) {
    // What is said of an optimizer as a whole, all that say it have in common.
    const bool is_of_all = name.starts_with("<optimizer");
    const std::vector<std::vector<int64_t>> groups =
        is_of_all ? std::vector<std::vector<int64_t>>{all} : HoldersOf(phase, model, name).tensors;
    for (const std::vector<int64_t>& ranks : groups) {
      for (const auto& [what, by_rank] : said_of) {
        Said said;
        for (const int64_t rank : ranks) {
          const auto value = by_rank.find(rank);
          if (value != by_rank.end()) said.emplace_back(rank, value->second);
        }
        if (said.size() > 1) unlike.Look(name, what, said, judgement);
      }
    }
  }
  unlike.Report(phase, findings);
}

}  // namespace shardproof
