// The seam to the file system. All that the pipeline reads and writes goes through it, so a disk
// fault is one decorator and a recorded save is another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/result.h"

namespace shardproof {

/// A read-only view of a whole file. File-backed: it commits no anonymous memory.
class MappedFile {
 public:
  virtual ~MappedFile() = default;
  virtual const std::byte* data() const = 0;
  virtual uint64_t size() const = 0;  ///< bytes
};

/// A file being written. Destroying it closes it without making anything durable.
class OutputFile {
 public:
  virtual ~OutputFile() = default;
  /// Writes all of `bytes` at `offset` (bytes). \error kFailed naming the file and errno.
  virtual Status WriteAt(uint64_t offset, std::string_view bytes) = 0;
  /// Returns once everything written is durable. \error kFailed: the data counts as lost.
  virtual Status Sync() = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  /// \error kBadInput if `path` is not a readable regular file.
  virtual Result<std::shared_ptr<const MappedFile>> Map(const std::string& path) = 0;
  /// The whole of a file of at most `bytes_max` bytes. \error kBadInput if absent or larger.
  virtual Result<std::string> ReadText(const std::string& path, uint64_t bytes_max) = 0;
  virtual bool Exists(const std::string& path) = 0;
  /// Names in a directory, sorted. \error kBadInput if it is none.
  virtual Result<std::vector<std::string>> List(const std::string& directory) = 0;

  /// Makes a new file of `size` bytes. \error kFailed if it exists or cannot be made.
  virtual Status Create(const std::string& path, uint64_t size) = 0;
  /// Opens an existing file for writing. \error kFailed.
  virtual Result<std::unique_ptr<OutputFile>> OpenForWrite(const std::string& path) = 0;
  /// \error kFailed if it exists or its parent is missing.
  virtual Status MakeDirectory(const std::string& path) = 0;
  /// Makes the names in a directory durable. \error kFailed.
  virtual Status SyncDirectory(const std::string& path) = 0;
  /// Atomically gives `from` the name `to`, which must not exist. \error kFailed.
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  /// Atomically gives the file `from` the name `to`; a file that had it is gone. \error kFailed.
  virtual Status Replace(const std::string& from, const std::string& to) = 0;
  /// Atomically swaps what two existing names stand for. \error kFailed.
  virtual Status Exchange(const std::string& a, const std::string& b) = 0;
  /// Removes a directory and what is in it; absent is fine. \error kFailed.
  virtual Status RemoveTree(const std::string& path) = 0;
};

/// The real one, by POSIX calls.
std::shared_ptr<FileSystem> MakePosixFileSystem();

}  // namespace shardproof
