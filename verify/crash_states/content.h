// The bytes of one file, made of stretches of buffers that are shared between all states in which
// the file holds them: a state costs what differs, not what the checkpoint weighs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace shardproof::crash {

using SharedBytes = std::shared_ptr<const std::string>;

/// A file's size and bytes; where nothing was written there is a hole, which reads as zeros. A
/// value: copies share. Not for use by two threads at once (the hash is kept).
class FileContent {
 public:
  struct Extent {
    int64_t start = 0;   ///< bytes; where in the file
    int64_t length = 0;  ///< bytes; at least 1
    SharedBytes bytes;
    int64_t from = 0;  ///< bytes; where in the buffer

    int64_t end() const { return start + length; }
    const char* data() const { return bytes->data() + from; }
  };

  int64_t size() const { return size_; }  ///< bytes
  /// What was written, in order, without overlaps; between them, and behind them, are holes.
  const std::vector<Extent>& extents() const { return extents_; }

  /// Bytes [from, to) of the buffer, which it must have, come to `offset`.
  void Write(int64_t offset, const SharedBytes& bytes, int64_t from, int64_t to);
  void Resize(int64_t size);

  /// Whether [begin, end), which is not empty, holds no byte of a hole.
  bool IsWritten(int64_t begin, int64_t end) const;
  /// The whole file in memory.
  std::string Text() const;
  /// Of size and bytes, however they came there.
  uint64_t Hash() const;
  bool operator==(const FileContent& other) const;

 private:
  /// Leaves a hole.
  void Cut(int64_t begin, int64_t end);

  int64_t size_ = 0;
  std::vector<Extent> extents_;
  mutable bool hashed_ = false;
  mutable uint64_t hash_ = 0;
};

}  // namespace shardproof::crash
