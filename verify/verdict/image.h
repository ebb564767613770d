// A tensor as one whole, put together from whatever holds it: a file, or the ranks of one shard
// group, whose digests add up. Borrows from the evidence; cheap to build.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "verify/evidence/evidence.h"

namespace shardproof {

/// What one rank, or the file, contributes. Null pointers for a file's rank.
struct Part {
  const RankEvidence* rank = nullptr;
  const TensorState* state = nullptr;
  const TensorDescriptor* descriptor = nullptr;
  const FileTensor* file = nullptr;

  const BlockDigests& blocks() const { return file != nullptr ? file->blocks : state->blocks; }
  const std::vector<ByteRange>& bytes() const {
    return file != nullptr ? file->bytes : state->bytes;
  }
};

struct Image {
  std::string dtype;
  std::vector<int64_t> shape;
  Digest digest;
  Digest coverage;
  uint64_t nan_count = 0;
  uint64_t inf_count = 0;
  std::optional<uint64_t> first_nonfinite;
  bool defined = true;     ///< every part's content is defined, on a real device
  std::string unreadable;  ///< why a part's bytes could not be read, or empty
  bool partial = false;    ///< a placement says that the values await a reduction
  std::vector<Part> parts;

  std::vector<int64_t> Ranks() const;
};

Image ImageOf(const FileTensor& tensor);

/// The tensor's replicas at a stage: one image for each group of ranks that together hold it all,
/// as their groups or their placements and coordinates say, in order of the groups' first rank.
/// Ranks that lack the stage or the tensor contribute nothing, so an image may be incomplete: its
/// coverage tells.
std::vector<Image> ImagesOf(const PhaseEvidence& phase, const StageKey& stage,
                            const std::string& tensor);

/// Each of its parts as an image of its own, which covers no more than the part.
std::vector<Image> PartsOf(const Image& image);

/// The same images, those of which most are equal first; as they were if that is as true of the
/// first.
std::vector<Image> CommonestFirst(std::vector<Image> images);

/// How many are equal to the first.
size_t CountOfFirst(const std::vector<Image>& images);

/// Why ranks may have other values in it, if all say that they may; see TensorDescriptor.
std::string WhyItVaries(const std::vector<Image>& images);

/// Whether no rank saves it, and steps write it: a cache of activations, say.
bool IsScratch(const std::vector<Image>& images);

bool AreEqual(const Image& a, const Image& b);

/// Known stretches of a global byte image, disjoint and joined where they touch.
class KnownBytes {
 public:
  explicit KnownBytes(const Image& image);

  /// The bytes [start, start + length), if all of them are known.
  std::optional<std::string_view> Read(uint64_t start, uint64_t length) const;
  const std::map<uint64_t, std::string>& stretches() const { return stretches_; }

 private:
  std::map<uint64_t, std::string> stretches_;
};

}  // namespace shardproof
