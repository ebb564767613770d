// Which key of the checkpoint fills which tensor of the model.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/core/result.h"
#include "src/load/safetensors.h"
#include "src/model/model.h"

namespace shardproof {

struct KeyMatch {
  std::vector<std::pair<std::shared_ptr<Slot>, std::string>> loads;  ///< slot, key in the source
  std::vector<std::shared_ptr<Slot>> missing;  ///< persistent slots that no key fills
  std::vector<std::string> unexpected;         ///< keys that fill nothing
};

/// A tied slot takes the first of its names that the source has; further names are no surprise.
/// Non-persistent slots are never loaded.
/// \error kBadInput if a key's shape is not its slot's, naming both.
Result<KeyMatch> MatchKeys(const Model& model, const Source& source);

}  // namespace shardproof
