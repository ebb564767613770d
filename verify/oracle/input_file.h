// A regular file, or one of a tree that is mounted, opened for reading by position. Nothing here
// trusts a length that a file states.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "src/core/result.h"
#include "verify/oracle/tree.h"

namespace shardproof::oracle {

/// An open regular file. Symbolic links are followed; what they end at must be a regular file.
class InputFile {
 public:
  /// Opens without blocking, so that a FIFO cannot hold the caller.
  /// \error kBadInput if `path` cannot be opened or is no regular file.
  static Result<std::shared_ptr<const InputFile>> Open(const std::string& path);

  /// Of an open descriptor, which becomes its own. \param path  how it is called.
  static Result<std::shared_ptr<const InputFile>> Of(const std::string& path, int descriptor);

  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  /// Bytes, as of the opening.
  uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }

  /// Reads exactly `length` bytes at `offset` into `out`. \error kBadInput on a short read.
  Status ReadAt(uint64_t offset, uint64_t length, char* out) const;

 private:
  InputFile(std::string path, int descriptor, uint64_t size)
      : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

  std::string path_;
  int descriptor_;  ///< -1: of a tree
  uint64_t size_;
  mutable std::mutex one_at_a_time_;
  ReadRange read_;  ///< of a tree
};

/// Whether a name that a file gives is a relative path that stays inside its directory, part by
/// part.
bool StaysInside(std::string_view name);

/// The whole file. \error kBadInput if it is larger than `bytes_max`.
Result<std::string> ReadWholeFile(const std::string& path, uint64_t bytes_max);

}  // namespace shardproof::oracle
