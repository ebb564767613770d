// Records what a save does to the file system, at the seam.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "src/storage/file_system.h"
#include "verify/crash_states/operation.h"

namespace shardproof::crash {

/// What all ranks of a process did, in one order. Threads may record at once: each operation is
/// done and noted under one lock, so that the order is that in which they were done, and a sync
/// stands behind exactly the writes that it covers. That makes the ranks wait for each other; reads
/// do not.
class Recording {
 public:
  /// \param root  the directory that is looked at, which exists; what is done elsewhere is not
  /// recorded
  explicit Recording(const std::string& root);

  /// In the order in which they were done, numbered from 0.
  /// \error kUnsupported if something was moved into `root` or out of it.
  Result<std::vector<FileOperation>> Operations() const;

 private:
  friend class RecordedFile;
  friend class RecordedFiles;

  /// Of a file that is open; follows it when it or a directory above it is renamed. Empty: it has
  /// no name below `root` any more.
  using OpenPath = std::optional<std::string>;

  /// Relative to `root`; nothing if it is not below it.
  std::optional<std::string> Below(const std::string& path) const;
  void Note(FileOperation operation);
  void NoteMove(OperationKind kind, int64_t rank, const std::string& from, const std::string& to);
  void NoteUnlink(int64_t rank, const std::string& path);

  const std::string root_;
  mutable std::mutex mutex_;  ///< of what follows, and held while an operation is done
  std::vector<FileOperation> operations_;
  std::set<OpenPath*> open_;
  std::string crossing_;  ///< a move across the border of `root`; empty: none
};

/// Passes everything on to `inner`, which works on the real file system, and notes what succeeded.
/// - A Create of more than 0 bytes is two operations, a create and a truncate.
/// - A RemoveTree is the unlinks and rmdirs that std::filesystem::remove_all does, in its order; if
///   it fails, those that took place.
/// - What else fails is not recorded, nor what it may have done in part: a save in which something
///   failed and that goes on regardless is not to be judged by its recording.
/// - A sync that fails counts as none, and so do later ones of the same open file: the kernel tells
///   once of a page that it could not write, and then takes it for clean.
std::shared_ptr<FileSystem> RecordFiles(std::shared_ptr<FileSystem> inner, int64_t rank,
                                        std::shared_ptr<Recording> recording);

}  // namespace shardproof::crash
