#include "verify/verdict/expectation.h"

#include <algorithm>
#include <set>

namespace shardproof {
namespace {

const FileTensor* FindIn(const std::map<std::string, FileTensor>& tensors,
                         const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto found = tensors.find(name);
    if (found != tensors.end()) return &found->second;
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> TieGroup(const Ties& ties, const std::string& name) {
  for (const std::vector<std::string>& group : ties) {
    if (std::find(group.begin(), group.end(), name) != group.end()) return group;
  }
  return {name};
}

std::vector<std::string> TieGroup(const OracleRecord& oracle, const std::string& name) {
  return TieGroup(oracle.ties, name);
}

std::map<Phase, const CheckpointRecord*> SavedModels(const OracleRecord& oracle) {
  std::map<Phase, const CheckpointRecord*> models;
  for (const auto& [phase, saved] : oracle.saved) {
    if (!FactsOf(phase).trains) models[phase] = &saved;
  }
  return models;
}

bool IsPersistent(const OracleRecord& oracle, const std::string& name) {
  const auto declared = oracle.declared.find(name);
  return declared == oracle.declared.end() || declared->second.kind != "buffer" ||
         declared->second.persistent;
}

Expectation ExpectedOf(const OracleRecord& oracle, const std::string& name) {
  if (oracle.derived.contains(name)) return {};
  const std::vector<std::string> names = TieGroup(oracle, name);
  if (oracle.twin) {
    const FileTensor* found = FindIn(oracle.twin->values, names);
    if (found != nullptr) return {found, {Against::What::kTwin}};
  }
  if (IsPersistent(oracle, name)) {
    const FileTensor* found = FindIn(oracle.source.tensors, names);
    if (found != nullptr) return {found, {Against::What::kCheckpoint}};
  }
  const FileTensor* missing = FindIn(oracle.missing, names);
  if (missing != nullptr) return {missing, {Against::What::kInitial}};
  return {};
}

Ties TiesOfJob(const PhaseEvidence& phase) {
  Ties ties;
  std::set<std::string> seen;
  for (const RankEvidence& rank : phase.ranks) {
    const auto stage = std::find_if(rank.stages.begin(), rank.stages.end(),
                                    [](const StageRecord& each) { return each.of == "model"; });
    if (stage == rank.stages.end()) continue;
    std::map<int64_t, std::vector<std::string>> aliases;
    std::set<int64_t> judged;  // Groups of which an earlier rank has a name.
    for (const auto& [name, state] : stage->tensors) {
      const TensorDescriptor& descriptor = rank.Descriptor(state);
      if (descriptor.alias_group < 0 || descriptor.OwnedElements() == 0) continue;
      aliases[descriptor.alias_group].push_back(name);
      if (seen.contains(name)) judged.insert(descriptor.alias_group);
    }
    for (const auto& [name, state] : stage->tensors) seen.insert(name);
    for (auto& [number, names] : aliases) {
      if (names.size() > 1 && !judged.contains(number)) ties.push_back(std::move(names));
    }
  }
  return ties;
}

}  // namespace shardproof
