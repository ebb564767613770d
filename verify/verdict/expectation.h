// What the oracle expects of a tensor, with ties and buffers resolved.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "verify/evidence/evidence.h"
#include "verify/verdict/facts.h"

namespace shardproof {

struct Expectation {
  const FileTensor* tensor = nullptr;  ///< null: the oracle knows no bytes for it
  Against from;                        ///< the checkpoint, the plain twin or its initial value
};

/// The bytes that a tensor must have once loaded: what the plain twin has, where no file says it or
/// the two differ (TwinOracle::values); the source's under its own name or a tied one,
/// else those of initialisation. Derived buffers have none (their values have a tolerance), and
/// non-persistent ones never take the source's.
Expectation ExpectedOf(const OracleRecord& oracle, const std::string& name);

using Ties = std::vector<std::vector<std::string>>;  ///< groups of names that share memory

/// The names of the tie group that `name` is in; `name` alone if it is in none.
std::vector<std::string> TieGroup(const Ties& ties, const std::string& name);
std::vector<std::string> TieGroup(const OracleRecord& oracle, const std::string& name);

/// The checkpoints of models alone, by the phase that saved them. (What a training job saves has
/// keys of its own, and steps have changed it.)
std::map<Phase, const CheckpointRecord*> SavedModels(const OracleRecord& oracle);

/// Whether the state dict holds it, as declared; true for what is not declared.
bool IsPersistent(const OracleRecord& oracle, const std::string& name);

/// The ties that a job shows itself, where no checkpoint says which there are: names that share
/// memory at the first stage of the model, on the first rank that has one of them.
Ties TiesOfJob(const PhaseEvidence& phase);

}  // namespace shardproof
