#include "verify/trace/file_system_calls.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "verify/trace/calls_of_x86.h"
#include "verify/trace/tracee.h"

namespace shardproof {
namespace {

/// Where a call's file is named.
enum class Named {
  kByDescriptor,  ///< argument 0
  kByOutput,      ///< a descriptor, in another argument
  kByPath,        ///< argument 0
  kByPathAt,      ///< arguments 0 and 1
};

struct Known {
  long number = 0;
  FileOp op = FileOp::kWrite;
  Named named = Named::kByDescriptor;
  int output = 0;  ///< of kByOutput: which argument
  int count = -1;  ///< which argument says how many bytes; -1: none
};

/// One number may stand for several ops: Classify says which.
constexpr std::array kKnown = {
    Known{SYS_write, FileOp::kWrite, Named::kByDescriptor, 0, 2},
    Known{SYS_pwrite64, FileOp::kWrite, Named::kByDescriptor, 0, 2},
    Known{SYS_writev, FileOp::kWrite},
    Known{SYS_pwritev, FileOp::kWrite},
    Known{SYS_pwritev2, FileOp::kWrite},
    Known{SYS_fallocate, FileOp::kWrite, Named::kByDescriptor, 0, 3},
    Known{SYS_sendfile, FileOp::kWrite, Named::kByOutput, 0, 3},
    Known{SYS_copy_file_range, FileOp::kWrite, Named::kByOutput, 2, 4},
    Known{SYS_splice, FileOp::kWrite, Named::kByOutput, 2, 4},
    Known{SYS_read, FileOp::kRead, Named::kByDescriptor, 0, 2},
    Known{SYS_pread64, FileOp::kRead, Named::kByDescriptor, 0, 2},
    Known{SYS_readv, FileOp::kRead},
    Known{SYS_preadv, FileOp::kRead},
    Known{SYS_preadv2, FileOp::kRead},
    Known{SYS_mmap, FileOp::kMap, Named::kByOutput, 4, 1},
    Known{SYS_fsync, FileOp::kSync},
    Known{SYS_fdatasync, FileOp::kSync},
    Known{SYS_sync_file_range, FileOp::kSync},
    Known{SYS_fsync, FileOp::kSyncDirectory},
    Known{SYS_fdatasync, FileOp::kSyncDirectory},
    Known{SYS_open, FileOp::kOpen, Named::kByPath},
    Known{SYS_openat, FileOp::kOpen, Named::kByPathAt},
    Known{SYS_creat, FileOp::kOpen, Named::kByPath},
    Known{SYS_open, FileOp::kCreate, Named::kByPath},
    Known{SYS_openat, FileOp::kCreate, Named::kByPathAt},
    Known{SYS_creat, FileOp::kCreate, Named::kByPath},
    Known{SYS_mkdir, FileOp::kMakeDirectory, Named::kByPath},
    Known{SYS_mkdirat, FileOp::kMakeDirectory, Named::kByPathAt},
    Known{SYS_rename, FileOp::kRename, Named::kByPath},
    Known{SYS_renameat, FileOp::kRename, Named::kByPathAt},
    Known{SYS_renameat2, FileOp::kRename, Named::kByPathAt},
    Known{SYS_unlink, FileOp::kRemove, Named::kByPath},
    Known{SYS_unlinkat, FileOp::kRemove, Named::kByPathAt},
    Known{SYS_rmdir, FileOp::kRemove, Named::kByPath},
};

std::optional<std::string> PathOf(const Known& known, const trace::Call& call) {
  const auto descriptor = [&](int index) { return static_cast<int>(call.arguments[index]); };
  switch (known.named) {
    case Named::kByDescriptor:
    case Named::kByOutput:
      return trace::PathOfDescriptor(call.thread, descriptor(known.output));
    case Named::kByPath:
      return trace::ResolvePathAt(call.thread, AT_FDCWD, call.arguments[0]);
    case Named::kByPathAt:
      return trace::ResolvePathAt(call.thread, descriptor(0), call.arguments[1]);
  }
  return std::nullopt;
}

/// How an open is to be taken; nothing if nothing is to be written.
std::optional<FileOp> OfOpen(const trace::Call& call, const std::string& path) {
  int flags = O_WRONLY | O_CREAT;  // of creat
  if (call.number == SYS_open) flags = static_cast<int>(call.arguments[1]);
  if (call.number == SYS_openat) flags = static_cast<int>(call.arguments[2]);
  if ((flags & O_CREAT) != 0 && ::access(path.c_str(), F_OK) != 0) return FileOp::kCreate;
  if ((flags & O_ACCMODE) != O_RDONLY) return FileOp::kOpen;
  return std::nullopt;
}

bool IsDirectory(const std::string& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

/// The sum of the lengths of a vectored call.
uint64_t VectorBytes(const trace::Call& call) {
  constexpr uint64_t kVectorsMax = 1024;  // the kernel's own limit
  std::vector<iovec> vectors(std::min(call.arguments[2], kVectorsMax));
  const uint64_t size = vectors.size() * sizeof(iovec);
  if (!trace::ReadBytes(call.thread, call.arguments[1], reinterpret_cast<char*>(vectors.data()),
                        size)) {
    return 0;
  }
  uint64_t bytes = 0;
  for (const iovec& vector : vectors) bytes += vector.iov_len;
  return bytes;
}

}  // namespace

std::vector<long> SystemCallsOf(const std::set<FileOp>& ops) {
  std::set<long> calls;
  for (const Known& known : kKnown) {
    if (ops.contains(known.op)) calls.insert(known.number);
  }
  return {calls.begin(), calls.end()};
}

std::optional<FileSystemCall> Classify(const trace::Call& call) {
  const auto known = std::find_if(kKnown.begin(), kKnown.end(),
                                  [&](const Known& one) { return one.number == call.number; });
  if (known == kKnown.end()) return std::nullopt;
  auto path = PathOf(*known, call);
  if (!path || !path->starts_with('/')) return std::nullopt;  // a pipe, a socket
  FileSystemCall made{.op = known->op, .path = std::move(*path)};
  if (made.op == FileOp::kOpen) {
    const auto op = OfOpen(call, made.path);
    if (!op) return std::nullopt;
    made.op = *op;
  }
  if (made.op == FileOp::kSync && IsDirectory(made.path)) made.op = FileOp::kSyncDirectory;
  const bool moves_bytes = made.op == FileOp::kWrite || made.op == FileOp::kRead;
  if (known->count >= 0) {
    made.bytes = call.arguments[known->count];
    if (moves_bytes && call.number != SYS_fallocate) made.count_argument = known->count;
  } else if (moves_bytes) {
    made.bytes = VectorBytes(call);
  }
  return made;
}

std::string InWords(const FileSystemCall& call, const std::string& path) {
  switch (call.op) {
    case FileOp::kMap:
      return fmt::format("mapping {} bytes of {}", call.bytes, path);
    case FileOp::kRead:
      return fmt::format("reading {} bytes of {}", call.bytes, path);
    case FileOp::kCreate:
      return "creating " + path;
    case FileOp::kOpen:
      return fmt::format("opening {} for writing", path);
    case FileOp::kWrite:
      return fmt::format("writing {} bytes to {}", call.bytes, path);
    case FileOp::kSync:
      return "fsync of " + path;
    case FileOp::kMakeDirectory:
      return "making directory " + path;
    case FileOp::kSyncDirectory:
      return "fsync of directory " + path;
    case FileOp::kRename:
      return "renaming " + path;
    case FileOp::kRemove:
      return "removing " + path;
  }
  return path;
}

}  // namespace shardproof
