// The manifest of a checkpoint: dtype, shape and digest of every tensor, digests of its other
// values, and of its files what they hold beside tensors, in shardproof.seal.json among them.
// Digests do not depend on how a tensor is cut, so every rank adds what it writes, and every rank
// that loads what it has loaded.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/contract/job.h"
#include "src/digest/digest.hpp"
#include "src/model/model.h"

namespace shardproof {

inline constexpr const char* kManifestName = "shardproof.seal.json";

struct ManifestTensor {
  std::string dtype;  ///< safetensors' name: "BF16"
  std::vector<int64_t> shape;
  Digest digest;
};

struct ManifestFile {
  uint64_t bytes = 0;
  Digest digest;  ///< of those of its bytes that are no tensor's, where they are in it
};

struct Manifest {
  std::map<std::string, ManifestTensor> tensors;  ///< by the key that they are stored under
  std::map<std::string, Digest> values;           ///< of their texts in Python's notation
  std::map<std::string, ManifestFile> files;      ///< by their names in the directory
};

std::string ManifestText(const Manifest& manifest);

/// Parses what ManifestText gives. \param where  what the text is, for errors.
/// \error kBadInput naming the entry, what was expected and what was found.
Result<Manifest> ParseManifest(const std::string& text, const std::string& where);

/// The manifest in `directory`. \error kBadInput also if there is none, or one of more than 1 GiB.
Result<Manifest> ReadManifest(FileSystem& files, const std::string& directory);

Digest DigestOfText(std::string_view text);

/// Of bytes that are no tensor's and begin at `offset` of their file: a part of ManifestFile's.
Digest DigestOfFrame(uint64_t offset, std::string_view bytes);

/// What the bytes `local` of a slot's shard, in its row-major order, hold of the bytes `image` of
/// its global image, as a part of the digest of these. \source src/digest/SPECIFICATION.md
Digest DigestOfSlot(const Slot& slot, ByteSpan image, ByteSpan local);

/// What one key of a checkpoint holds.
struct SealedTensor {
  std::string key;
  const Slot* slot = nullptr;
  std::vector<int64_t> shape;
  ByteSpan image;  ///< of the slot's
};

/// What one manifest is to say, alike on all ranks.
struct Sealing {
  std::string folder;  ///< within the checkpoint: "", or "adapter"
  std::vector<SealedTensor> tensors;
  std::map<std::string, Digest> values;
  std::vector<std::string> files;  ///< within the folder; those that no rank writes are left out
};

/// What this rank adds to the manifests of a save, taken while it writes. Sums over the ranks are
/// what they say.
struct SaveDigests {
  /// By slot and the bytes of its image that are a tensor of the checkpoint.
  std::map<std::pair<const Slot*, ByteSpan>, Digest> tensors;
  /// By path. The size is added by the rank that makes the file.
  std::map<std::string, ManifestFile> files;

  /// Adds bytes of a file that are no tensor's.
  void AddFrame(const std::string& path, uint64_t offset, std::string_view bytes);
};

/// What all ranks have written, and how many of them have failed to.
struct SaveSums {
  int64_t failed_ranks = 0;
  std::vector<int64_t> numbers;  ///< of every tensor and file of the sealings, in their order
};

/// Adds up what the ranks have written into `staging`. Collective; to be agreed on.
/// \param is_written  whether this rank has written all it was to.
Result<SaveSums> SumOverRanks(const std::vector<Sealing>& sealings, const std::string& staging,
                              const SaveDigests& written, bool is_written, World& world);

/// On one rank: writes the manifests into `staging`, durably.
Status WriteManifests(const std::vector<Sealing>& sealings, const std::string& staging,
                      const SaveSums& sums, FileSystem& files);

}  // namespace shardproof
