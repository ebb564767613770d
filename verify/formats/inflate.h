// Compressed bytes, made plain in a file without a name, which is gone with who reads it.
#pragma once

#include <atomic>
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

/// Such a file for many, each at a place of its own: one descriptor, however many there are.
class InflatedFile {
 public:
  /// \param bytes  of all, none of which is there yet. \error kBadInput naming `path`.
  static Result<std::shared_ptr<InflatedFile>> Make(const std::string& path, uint64_t bytes);
  ~InflatedFile();

  /// As Inflate, to the bytes from `start` on. By any thread. \pre the place is big enough.
  Status Add(const Compressed& compressed, const std::string& path, uint64_t start);

  const oracle::InputFile& bytes() const { return *file_; }

 private:
  explicit InflatedFile(int descriptor) : descriptor_(descriptor) {}

  const int descriptor_;  ///< file_'s own
  std::shared_ptr<const oracle::InputFile> file_;
  std::atomic<uint64_t> written_ = 0;
};

}  // namespace shardproof::formats
