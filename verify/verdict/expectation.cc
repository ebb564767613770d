#include "verify/verdict/expectation.h"

#include <algorithm>

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

std::vector<std::string> TieGroup(const OracleRecord& oracle, const std::string& name) {
  for (const std::vector<std::string>& group : oracle.ties) {
    if (std::find(group.begin(), group.end(), name) != group.end()) return group;
  }
  return {name};
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
  if (IsPersistent(oracle, name)) {
    const FileTensor* found = FindIn(oracle.source.tensors, names);
    if (found != nullptr) return {found, {Against::What::kCheckpoint}};
  }
  const FileTensor* missing = FindIn(oracle.missing, names);
  if (missing != nullptr) return {missing, {Against::What::kInitial}};
  return {};
}

}  // namespace shardproof
