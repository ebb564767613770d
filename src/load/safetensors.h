// Reading safetensors: one file, or shards with an index. Everything in a header is hostile until it
// has been checked against the file it stands in.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "src/core/result.h"
#include "src/seam/file_system.h"

namespace shardproof {

/// What a checkpoint says of one tensor.
struct SourceTensor {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  int64_t file = 0;       ///< index into Source::files
  uint64_t offset = 0;    ///< absolute, bytes
  uint64_t length = 0;    ///< bytes
};

/// A checkpoint: what the headers say everywhere; mappings only where it was opened.
struct Source {
  std::map<std::string, SourceTensor> tensors;
  std::vector<std::shared_ptr<const MappedFile>> files;

  bool mapped() const { return !files.empty(); }
  /// The tensor's bytes in the mapping. Requires mapped().
  const std::byte* BytesOf(const SourceTensor& tensor) const {
    return files[tensor.file]->data() + tensor.offset;
  }
};

/// Opens the checkpoint in `directory`: model.safetensors, else model.safetensors.index.json and the
/// files it names. Maps the files; reads no tensor data.
/// \error kBadInput naming file, offset or key, what was expected and what was found.
/// \source the safetensors format description.
Result<Source> OpenSource(FileSystem& files, const std::string& directory);

/// Adds the tensors of one file of `directory`.
/// \error kBadInput likewise, and of a tensor that is there already.
Status AddFile(FileSystem& files, const std::string& directory, const std::string& name,
               Source& source);

/// Text form of a Source without its mappings, and back, to tell ranks that do not read.
std::string DescribeSource(const Source& source);
Result<Source> SourceFromDescription(const std::string& text);

}  // namespace shardproof
