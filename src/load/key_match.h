// Which keys of the checkpoint fill which tensor of the model.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "src/digest/digest.hpp"
#include "src/format/safetensors.h"
#include "src/model/model.h"

namespace shardproof {

/// A key that fills a stretch of a slot's global byte image.
struct KeyPart {
  std::string key;
  uint64_t start = 0;                 ///< within the image, bytes
  uint64_t length = 0;                ///< bytes
  std::optional<Digest> digest = {};  ///< what this rank has filled of it, if it was taken already
};

/// The keys that fill one slot, in the order of its image, without gap or overlap.
struct SlotKeys {
  std::shared_ptr<Slot> slot;
  std::vector<KeyPart> parts;
};

struct KeyMatch {
  std::vector<SlotKeys> loads;
  std::vector<std::shared_ptr<Slot>> missing;  ///< persistent slots that no key fills
  std::vector<std::string> unexpected;         ///< keys that fill nothing
};

/// A slot takes the first way of its `stored` that the source has whole, else its own name; a tied
/// one the first of its names that the source has, and further names are no surprise.
/// Non-persistent slots are never loaded. What a slot is loaded from, a save will write: sets
/// Slot::saved_as. \error kBadInput if a key's shape or dtype is not what its slot needs, or a
/// source has some of the
///   keys that make a tensor and lacks others, naming them.
Result<KeyMatch> MatchKeys(const Model& model, const Source& source);

}  // namespace shardproof
