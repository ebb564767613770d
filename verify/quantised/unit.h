// Quantised weights of a checkpoint as units: the codes of each with the tensors that give them
// values.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "verify/formats/stored.h"
#include "verify/quantised/codes.h"
#include "verify/quantised/unit_parts.h"

namespace shardproof::quantised {

struct Unit {
  std::string name;  ///< of the weight, as a checkpoint that is not quantised has it
  std::string kind;  ///< for people: "NVFP4 of compressed-tensors"
  Shape shape;       ///< of the weight; empty where `unknown`
  QuantisationScheme scheme;
  std::string block_type;  ///< of GGUF: the type of its blocks
  /// By what each is: "codes", "scale", "global", "zero", "groups", ... As they are stored.
  std::map<std::string, formats::StoredTensor> parts;
  std::string unknown;  ///< why its numbers are not known; empty: they are
  /// Whether its writers may move weights away from the nearest code, to make up for the errors of
  /// others (GPTQ), or cut off the largest (AWQ, searches for the best scale).
  bool may_be_fitted = false;

  const formats::StoredTensor* Part(const std::string& part) const;
};

struct UnitsOfCheckpoint {
  std::vector<Unit> units;
  std::set<std::string> parts;  ///< names of all tensors that are in units
  /// Tensors that are about activations or caches, and no part of a weight.
  std::set<std::string> beside;
};

using Opener = std::function<Reader(const formats::StoredTensor&)>;

/// \param open  reads a tensor of the checkpoint, for small ones that say of what shape weights
/// are.
UnitsOfCheckpoint FindUnits(const formats::StoredCheckpoint& checkpoint,
                            const Quantisation& quantisation, const Opener& open);

}  // namespace shardproof::quantised
