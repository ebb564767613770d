// Files that evidence and reports are written to: a stream that survives the death of its writer,
// and a document that is either whole or not there.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "src/core/result.h"

namespace shardproof {

/// A file of lines that is only ever appended to. Thread-safe: a line is never torn by another.
class LineFile {
 public:
  /// \error kBadInput if the file exists (evidence is never written twice) or cannot be made.
  static Result<std::unique_ptr<LineFile>> Create(const std::string& path);
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  /// Appends `line` and a newline with one write(), so that a rank killed at any moment leaves
  /// whole lines and at most one torn one, the last. \error kBadInput naming the file (disk full,
  /// ...). The file is then closed to further lines,
  ///   which fail with the same error: a line after a torn one would be joined to it.
  Status Append(std::string_view line);

  uint64_t line_count() const;  ///< lines written so far

 private:
  LineFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  const int fd_;
  mutable std::mutex mutex_;
  uint64_t line_count_ = 0;
  std::string failure_;
};

/// Writes a whole file under a temporary name beside it and renames it into place.
/// \error kBadInput naming the file and what the system said; nothing is left behind.
Status WriteFileAtomically(const std::string& path, std::string_view text);

}  // namespace shardproof
