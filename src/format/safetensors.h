// Reading safetensors: one file, or shards with an index. Everything in a header is hostile until
// it has been checked against the file it stands in.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "src/core/state_path.h"
#include "src/digest/digest.hpp"
#include "src/storage/file_system.h"

namespace shardproof {

/// `count` equal stretches of a tensor's global byte image that lie one after the other in a file.
/// Bytes.
struct SourcePiece {
  uint64_t start = 0;   ///< of the first in the image
  uint64_t length = 0;  ///< of each
  uint64_t count = 1;
  uint64_t stride = 0;  ///< in the image, from one to the next
  int64_t file = 0;     ///< index into Source::files
  uint64_t offset = 0;  ///< of the first in the file
};

/// What a checkpoint says of one tensor.
struct SourceTensor {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  int64_t file = 0;     ///< index into Source::files
  uint64_t offset = 0;  ///< absolute, bytes
  uint64_t length = 0;  ///< bytes
  /// Where its bytes lie if not in one stretch from `offset` on: together its whole image.
  std::vector<SourcePiece> pieces;
  std::string key = {};  ///< in its file, if that is not its name here
  /// What its bytes add up to, where a manifest says it and the checkpoint was opened.
  std::optional<Digest> sealed = {};

  bool IsOneStretch() const { return pieces.empty(); }
  /// Calls visit(start in the image, file, offset, length) for the stretches of a file that make
  /// bytes [begin, end) of the image, piece by piece.
  template <typename Visit>
  void VisitStretches(uint64_t begin, uint64_t end, Visit visit) const {
    if (IsOneStretch()) {
      if (begin < end) visit(begin, file, offset + begin, end - begin);
      return;
    }
    for (const SourcePiece& piece : pieces) {
      uint64_t i = 0;  // of the first stretch that may reach into it
      if (piece.stride > 0 && begin > piece.start + piece.length) {
        i = std::min(piece.count, (begin - piece.start - piece.length) / piece.stride);
      }
      for (; i < piece.count && piece.start + i * piece.stride < end; ++i) {
        const uint64_t at = piece.start + i * piece.stride;
        const uint64_t from = std::max(begin, at);
        const uint64_t to = std::min(end, at + piece.length);
        if (from < to)
          visit(from, piece.file, piece.offset + i * piece.length + (from - at), to - from);
      }
    }
  }
};

/// A checkpoint: what the headers say everywhere; mappings only where it was opened.
struct Source {
  std::map<std::string, SourceTensor> tensors;
  /// What a training job has besides its model, by name: "optimizer.state.<FQN>.exp_avg", "rng_0".
  std::map<std::string, SourceTensor> state;
  /// What of it is no tensor, as pickles: "optimizer.param_groups.0.lr".
  std::map<std::string, std::string> values;
  /// Where in a nested state dict those of both stand whose keys do not say it.
  std::map<std::string, StatePath> paths_of_state;
  std::vector<std::shared_ptr<const MappedFile>> files;
  std::vector<std::string> paths;  ///< of the files
  bool sealed = false;  ///< whether a manifest says what is in it; also where it is not open

  bool mapped() const { return !files.empty(); }
  const std::byte* BytesAt(int64_t file, uint64_t offset) const {
    return files[file]->data() + offset;
  }
  /// The bytes in the mapping of a tensor that is one stretch. Requires mapped().
  const std::byte* BytesOf(const SourceTensor& tensor) const {
    return BytesAt(tensor.file, tensor.offset);
  }
};

/// Opens the checkpoint in `directory`: model.safetensors, else model.safetensors.index.json and
/// the files it names. Maps the files; reads no tensor data. \error kBadInput naming file, offset
/// or key, what was expected and what was found. \source the safetensors format description.
Result<Source> OpenSource(FileSystem& files, const std::string& directory);

/// The same of the files that `index` names, which is in `directory`.
Result<Source> OpenIndexed(FileSystem& files, const std::string& directory,
                           const std::string& index);

/// Adds the tensors of one file of `directory`.
/// \error kBadInput likewise, and of a tensor that is there already.
Status AddFile(FileSystem& files, const std::string& directory, const std::string& name,
               Source& source);

/// Text form of a Source without its mappings, and back, to tell ranks that do not read.
std::string DescribeSource(const Source& source);
Result<Source> SourceFromDescription(const std::string& text);

}  // namespace shardproof
