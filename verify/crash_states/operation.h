// What a save did to the file system: one operation after the other, as a decorator of the seam
// records it (recorder.h) or as a trace of somebody else's system calls can be read.
#pragma once

#include <cstdint>
#include <string>

namespace shardproof::crash {

/// Each is one system call that the kernel does as a whole, except a write.
enum class OperationKind {
  kCreate,           ///< open(O_CREAT | O_EXCL): a new file of `size` zero bytes
  kWrite,            ///< pwrite: `bytes` at `offset`, beyond the file's end too
  kTruncate,         ///< ftruncate to `size`
  kSyncFile,         ///< fsync of a file
  kMakeDirectory,    ///< mkdir
  kSyncDirectory,    ///< fsync of a directory
  kRename,           ///< rename(2) of `path` to `other`: what had that name is replaced
  kExchange,         ///< renameat2(RENAME_EXCHANGE) of `path` and `other`
  kUnlink,           ///< unlink: a file's name
  kRemoveDirectory,  ///< rmdir: an empty directory
  kLink,             ///< link(2): `other` becomes a name of the file `path` too
  kSymlink,          ///< symlink(2): `path` is a link that leads to `other`
};

/// One operation that succeeded. Paths are relative to the directory that is looked at, parts
/// joined by '/'; empty, or ".", is that directory itself. A file that is made and then sized is
/// two operations, kCreate of size 0 and kTruncate: a crash may come between.
struct FileOperation {
  int64_t sequence = 0;  ///< one numbering for all ranks; a legal order of what happened
  int64_t rank = 0;
  OperationKind kind = OperationKind::kCreate;
  std::string path;
  std::string other;   ///< of kRename, kExchange, kLink; of kSymlink as in link_target.h
  int64_t offset = 0;  ///< bytes; of kWrite
  std::string bytes;   ///< what a kWrite writes
  int64_t size = 0;    ///< bytes; of kCreate, kTruncate
};

/// Of kCreate, kMakeDirectory and kSymlink: what has the name afterwards was nowhere before.
constexpr bool MakesInode(OperationKind kind) {
  return kind == OperationKind::kCreate || kind == OperationKind::kMakeDirectory ||
         kind == OperationKind::kSymlink;
}

/// "write", "sync_directory", ...
const char* ToString(OperationKind kind);

/// In words, without the rank: "write of bytes [0, 4096) of ckpt.saving/model-0".
std::string Describe(const FileOperation& operation);

}  // namespace shardproof::crash
