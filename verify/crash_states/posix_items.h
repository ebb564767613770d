// What one crash may lose under posix, item by item. Internal to the folder.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "verify/crash_states/choices.h"
#include "verify/crash_states/history.h"

namespace shardproof::crash {

/// A change of names that is not durable, or half of one. Losses: 1, it.
struct NameItem {
  int64_t index = 0;  ///< of the operation
};

/// Bytes of a write that are not there: [begin, end) in the file, whole blocks or up to the write's
/// ends.
struct LostBytes {
  int64_t index = 0;  ///< of the operation
  int64_t begin = 0;
  int64_t end = 0;
};

/// A write that is not durable. Losses: 1 + i, losses[i]; the last one is all of it.
struct WriteItem {
  int64_t index = 0;
  std::vector<LostBytes> losses;
};

/// The size that a file had when so many operations had been begun.
struct SizeMoment {
  int64_t done = 0;  ///< operations
  int64_t size = 0;  ///< bytes
};

/// A file's size that is not durable. Losses: i, moments[i], from the latest, which is no loss,
/// back.
struct SizeItem {
  Inode inode = kNoInode;
  std::vector<SizeMoment> moments;
};

/// The items are numbered: names, then writes, then sizes.
struct PosixItems {
  std::vector<NameItem> names;
  std::vector<WriteItem> writes;
  std::vector<SizeItem> sizes;

  size_t WriteAt(size_t i) const { return names.size() + i; }
  size_t SizeAt(size_t i) const { return names.size() + writes.size() + i; }
};

/// What a crash after `after` operations may lose.

/// \param syncs  of LastSyncs
PosixItems ItemsOf(const History& history, const StateOptions& options, int64_t after,
                   const std::vector<int64_t>& syncs);

/// With combinations that are likely to be met and that no single loss is: all bytes, all sizes,
/// all names, those of one file or directory, and a write that is lost together with the size that
/// it gave.
Choices ChoicesOf(const History& history, const PosixItems& items);

}  // namespace shardproof::crash
