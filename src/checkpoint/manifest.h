// The manifest of a checkpoint: dtype, shape and digest of every tensor, and digests of its other
// values and of its files, in shardproof.seal.json beside them. Digests do not depend on how a
// tensor is cut, so every rank adds what it writes, and every rank that loads what it has loaded.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/checkpoint/digest_files.h"
#include "src/digest/digest.hpp"
#include "src/pipeline/stages.h"

namespace shardproof {

inline constexpr const char* kManifestName = "shardproof.seal.json";

struct ManifestTensor {
  std::string dtype;  ///< safetensors' name: "BF16"
  std::vector<int64_t> shape;
  Digest digest;
};

struct Manifest {
  std::map<std::string, ManifestTensor> tensors;  ///< by the key that they are stored under
  std::map<std::string, Digest> values;           ///< of their texts in Python's notation
  std::map<std::string, Digest> files;            ///< by their names in the directory
};

std::string ManifestText(const Manifest& manifest);

/// Parses what ManifestText gives. \param where  what the text is, for errors.
/// \error kBadInput naming the entry, what was expected and what was found.
Result<Manifest> ParseManifest(const std::string& text, const std::string& where);

/// The manifest in `directory`. \error kBadInput also if there is none, or one of more than 1 GiB.
Result<Manifest> ReadManifest(FileSystem& files, const std::string& directory);

Digest DigestOfText(std::string_view text);

/// What this rank holds of bytes [start, start + length) of a slot's image, as a part of the digest
/// of these. \source src/digest/SPECIFICATION.md
Digest DigestOfSlot(const Slot& slot, uint64_t start, uint64_t length);

/// What one key of a checkpoint holds.
struct SealedTensor {
  std::string key;
  const Slot* slot = nullptr;
  std::vector<int64_t> shape;
  uint64_t start = 0;   ///< within the slot's image, bytes
  uint64_t length = 0;  ///< bytes
  bool is_own = true;   ///< whether this rank writes its part of it: of replicas the first does
  std::optional<Digest> digest = {};  ///< what this rank adds, if it was taken already
};

/// What one manifest is to say, alike on all ranks but for `is_own`.
struct Sealing {
  std::string folder;  ///< within the checkpoint: "", or "adapter"
  std::vector<SealedTensor> tensors;
  std::map<std::string, Digest> values;
  std::vector<std::string> files;  ///< within the folder; those that no rank writes are left out
};

/// Rank 0 writes the manifests into `staging`, durably, with what all ranks have in memory and have
/// written through `written`. Collective; to be agreed on.
Status WriteManifests(const std::vector<Sealing>& sealings, const std::string& staging,
                      const DigestedFiles& written, const Stages& stages, World& world);

}  // namespace shardproof
