#pragma once

namespace shardproof {

/// What is done with files, as the pipeline asks its seam for it or a program the kernel.
enum class FileOp {
  kMap,
  kRead,
  kCreate,
  kOpen,
  kWrite,
  kSync,
  kMakeDirectory,
  kSyncDirectory,
  kRename,  ///< and replace, and exchange
  kRemove,
};

}  // namespace shardproof
