// Files that lie elsewhere than in the file system: in an archive, or behind a URL. Once they are
// mounted at a path, they are found and read below it as if they lay there.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "src/core/result.h"

namespace shardproof::oracle {

/// Reads exactly so many bytes at that offset of one file. Called by one thread at a time.
using ReadRange = std::function<Status(uint64_t offset, uint64_t length, char* out)>;

struct TreeFile {
  uint64_t bytes = 0;
  std::function<ReadRange()> open;  ///< by any thread
};

/// By their names, parts with slashes between them. A file without a name is the path itself.
using Tree = std::map<std::string, TreeFile>;

/// Longer names are no paths of Linux, and work on them grows with their square.
inline constexpr size_t kTreeNameBytesMax = 4096;

/// From now on this is what lies at `path`. Not while others read.
void Mount(const std::string& path, Tree tree);
void Unmount(const std::string& path);

/// Whether `path` is one at which something is mounted, or lies below it.
bool IsMounted(const std::string& path);

/// A place in what is mounted.
struct TreePlace {
  const Tree* tree = nullptr;  ///< null: nothing is mounted there
  std::string name;            ///< in the tree; empty: the whole of it

  const TreeFile* File() const;
  bool IsDirectory() const;
};

TreePlace FindInTrees(const std::string& path);

}  // namespace shardproof::oracle
