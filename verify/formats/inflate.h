// Compressed bytes, made plain in a file without a name, which is gone with who reads it.
#pragma once

#include <memory>
#include <optional>

#include "verify/oracle/input_file.h"

namespace shardproof::formats {

struct Compressed {
  std::shared_ptr<const oracle::InputFile> file;
  uint64_t start = 0;
  uint64_t bytes = 0;    ///< compressed
  bool is_gzip = false;  ///< with gzip's header, and its CRC-32; else bare, as in ZIP archives
  std::optional<uint64_t> length = std::nullopt;  ///< as it has to be
};

/// The file lies in TMPDIR, where all of them take no more than half of what is free. \param path
/// how it is called. \error kBadInput naming `path`: the bytes are not such, are cut short, or have
/// another length or CRC-32; there is no space for them.
Result<std::shared_ptr<const oracle::InputFile>> Inflate(const Compressed& compressed,
                                                         const std::string& path);

}  // namespace shardproof::formats
