// What each system call does to the directory that is looked at.
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>
#include <filesystem>

#include "verify/crash_states/link_target.h"
#include "verify/crash_states/open_file.h"
#include "verify/crash_states/traced.h"
#include "verify/trace/calls_of_x86.h"
#include "verify/trace/tracee.h"

namespace shardproof::crash {
namespace {

namespace fs = std::filesystem;
using trace::Call;

/// With a last name that is a link followed, as open does.
std::string Followed(const std::string& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  return error ? path : real.string();
}

int Fd(uint64_t argument) { return static_cast<int>(argument); }

std::optional<int64_t> ReadNumber(const Call& call, uint64_t address) {
  int64_t number = 0;
  if (!trace::ReadBytes(call.thread, address, reinterpret_cast<char*>(&number), sizeof number)) {
    return std::nullopt;
  }
  return number;
}

}  // namespace

std::vector<long> TracedSave::Calls() {
  return {SYS_open,      SYS_openat,    SYS_openat2,    SYS_creat,
          SYS_write,     SYS_writev,    SYS_pwrite64,   SYS_pwritev,
          SYS_pwritev2,  SYS_sendfile,  SYS_splice,     SYS_copy_file_range,
          SYS_ftruncate, SYS_truncate,  SYS_fallocate,  SYS_fsync,
          SYS_fdatasync, SYS_sync,      SYS_syncfs,     SYS_rename,
          SYS_renameat,  SYS_renameat2, SYS_unlink,     SYS_unlinkat,
          SYS_rmdir,     SYS_mkdir,     SYS_mkdirat,    SYS_mknod,
          SYS_mknodat,   SYS_link,      SYS_linkat,     SYS_symlink,
          SYS_symlinkat, SYS_mmap,      SYS_ioctl,      SYS_io_uring_setup,
          SYS_io_setup,  SYS_chroot,    SYS_pivot_root, SYS_unshare,
          SYS_setns,     SYS_mount};
}

TracedSave::Plan TracedSave::PlanOf(const Call& call) {
  const auto& a = call.arguments;
  switch (call.number) {
    case SYS_open:
      return PlanOfOpen(call, AT_FDCWD, a[0], a[1]);
    case SYS_creat:
      return PlanOfOpen(call, AT_FDCWD, a[0], O_CREAT | O_WRONLY | O_TRUNC);
    case SYS_openat:
      return PlanOfOpen(call, Fd(a[0]), a[1], a[2]);
    case SYS_openat2: {
      const auto flags = ReadNumber(call, a[2]);  // the first field of open_how
      return flags ? PlanOfOpen(call, Fd(a[0]), a[1], static_cast<uint64_t>(*flags)) : std::nullopt;
    }
    case SYS_write:
    case SYS_writev:
    case SYS_sendfile:
      return PlanOfWrite(call, Fd(a[0]), std::nullopt);
    case SYS_pwrite64:
    case SYS_pwritev:
      return PlanOfWrite(call, Fd(a[0]), static_cast<int64_t>(a[3]));
    case SYS_pwritev2: {
      const auto offset = static_cast<int64_t>(a[3]);
      return PlanOfWrite(call, Fd(a[0]), offset == -1 ? std::nullopt : std::optional(offset), a[5]);
    }
    case SYS_splice:
    case SYS_copy_file_range:
      return PlanOfWrite(call, Fd(a[2]), a[3] == 0 ? std::nullopt : ReadNumber(call, a[3]));
    case SYS_truncate: {
      const auto path = trace::ResolvePathAt(call.thread, AT_FDCWD, a[0]);
      if (!path) return std::nullopt;
      return PlanOfResize(call, Followed(*path), static_cast<int64_t>(a[1]));
    }
    case SYS_ftruncate: {
      const auto file = LookAt(call.thread, Fd(a[0]));
      if (!file || !file->has_name) return std::nullopt;
      return PlanOfResize(call, file->path, static_cast<int64_t>(a[1]));
    }
    case SYS_fallocate:
      return PlanOfFallocate(call);
    case SYS_fsync:
    case SYS_fdatasync:
      return PlanOfSync(call);
    case SYS_sync:
    case SYS_syncfs:
      return PlanOfSyncAll(call);
    default:
      return PlanOfNames(call);
  }
}

TracedSave::Plan TracedSave::PlanOfNames(const Call& call) {
  const auto& a = call.arguments;
  switch (call.number) {
    case SYS_rename:
      return PlanOfRename(call, AT_FDCWD, a[0], AT_FDCWD, a[1], 0);
    case SYS_renameat:
      return PlanOfRename(call, Fd(a[0]), a[1], Fd(a[2]), a[3], 0);
    case SYS_renameat2:
      return PlanOfRename(call, Fd(a[0]), a[1], Fd(a[2]), a[3], a[4]);
    case SYS_unlink:
      return PlanOfName(OperationKind::kUnlink, call, AT_FDCWD, a[0]);
    case SYS_rmdir:
      return PlanOfName(OperationKind::kRemoveDirectory, call, AT_FDCWD, a[0]);
    case SYS_unlinkat:
      return PlanOfName(
          (a[2] & AT_REMOVEDIR) != 0 ? OperationKind::kRemoveDirectory : OperationKind::kUnlink,
          call, Fd(a[0]), a[1]);
    case SYS_mkdir:
      return PlanOfName(OperationKind::kMakeDirectory, call, AT_FDCWD, a[0]);
    case SYS_mkdirat:
      return PlanOfName(OperationKind::kMakeDirectory, call, Fd(a[0]), a[1]);
    case SYS_mknod:
      return PlanOfRefusal(call, AT_FDCWD, a[0], "expected open to make files");
    case SYS_mknodat:
      return PlanOfRefusal(call, Fd(a[0]), a[1], "expected open to make files");
    case SYS_link:
      return PlanOfLink(call, AT_FDCWD, a[0], AT_FDCWD, a[1], 0);
    case SYS_linkat:
      return PlanOfLink(call, Fd(a[0]), a[1], Fd(a[2]), a[3], a[4]);
    case SYS_symlink:
      return PlanOfSymlink(call, a[0], AT_FDCWD, a[1]);
    case SYS_symlinkat:
      return PlanOfSymlink(call, a[0], Fd(a[1]), a[2]);
    default:
      return PlanOfOthers(call);
  }
}

TracedSave::Plan TracedSave::PlanOfOthers(const Call& call) {
  const auto& a = call.arguments;
  switch (call.number) {
    case SYS_mmap:
      NoteMapping(call);
      return std::nullopt;
    case SYS_ioctl: {
      // Told that the file system has no clones, a program copies.
      if (a[1] != FICLONE && a[1] != FICLONERANGE && a[1] != FIDEDUPERANGE) return std::nullopt;
      const auto file = LookAt(call.thread, Fd(a[0]));
      return file && Below(file->path) ? Plan(Finish()) : std::nullopt;
    }
    case SYS_io_uring_setup:
    case SYS_io_setup:
      return Finish();
    case SYS_unshare:
      if ((a[0] & CLONE_NEWNS) == 0) return std::nullopt;
      [[fallthrough]];
    case SYS_chroot:
    case SYS_pivot_root:
    case SYS_setns:
      return RefuseOtherRoot();
    case SYS_mount: {
      const auto path = trace::ResolvePathAt(call.thread, AT_FDCWD, a[1]);
      if (!path) return std::nullopt;
      const bool is_ours = Below(*path) || root_.starts_with(*path + "/");
      return is_ours ? Plan(RefuseOtherRoot()) : std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

TracedSave::Plan TracedSave::PlanOfOpen(const Call& call, int directory, uint64_t path,
                                        uint64_t flags) {
  if ((flags & (O_CREAT | O_TRUNC)) == 0 || (flags & O_TMPFILE) == O_TMPFILE) return std::nullopt;
  const auto named = trace::ResolvePathAt(call.thread, directory, path);
  if (!named) return std::nullopt;
  const std::string real = Followed(*named);
  const auto below = Below(real);
  if (!below) return std::nullopt;
  struct stat facts {};
  const bool existed = ::lstat(real.c_str(), &facts) == 0;
  if (existed && ((flags & O_TRUNC) == 0 || facts.st_size == 0)) return std::nullopt;
  return [this, existed, below = *below](const Call& left) {
    if (left.failed()) return;
    Note(left,
         {.kind = existed ? OperationKind::kTruncate : OperationKind::kCreate, .path = below});
  };
}

TracedSave::Plan TracedSave::PlanOfWrite(const Call& call, int descriptor,
                                         std::optional<int64_t> offset, uint64_t write_flags) {
  const auto file = LookAt(call.thread, descriptor);
  if (!file || !file->has_name || !file->is_regular) return std::nullopt;
  const auto below = Below(file->path);
  if (!below) return std::nullopt;
  int64_t at = offset.value_or(file->position);
  if (file->appends || (write_flags & RWF_APPEND) != 0) at = file->size;
  const bool syncs = file->syncs || (write_flags & (RWF_SYNC | RWF_DSYNC)) != 0;
  return [this, at, syncs, descriptor, below = *below](const Call& left) {
    if (left.failed() || left.result == 0) return;
    bytes_ += left.result;
    if (bytes_ > bytes_max_) {
      return Refuse(
          left, root_ + "/" + below,
          fmt::format("expected at most {} bytes to be written (--max-bytes)", bytes_max_));
    }
    auto bytes = ReadBack(left.thread, descriptor, at, left.result);
    if (!bytes.ok()) return Refuse(left, root_ + "/" + below, bytes.error().message);
    Note(left, {.kind = OperationKind::kWrite,
                .path = below,
                .offset = at,
                .bytes = std::move(bytes).value()});
    if (syncs) Note(left, {.kind = OperationKind::kSyncFile, .path = below});
  };
}

TracedSave::Plan TracedSave::PlanOfResize(const Call&, const std::string& path, int64_t size) {
  const auto below = Below(path);
  struct stat facts {};
  if (!below || ::lstat(path.c_str(), &facts) != 0 || facts.st_size == size) return std::nullopt;
  return [this, size, below = *below](const Call& left) {
    if (left.failed()) return;
    Note(left, {.kind = OperationKind::kTruncate, .path = below, .size = size});
  };
}

TracedSave::Plan TracedSave::PlanOfFallocate(const Call& call) {
  const auto file = LookAt(call.thread, Fd(call.arguments[0]));
  if (!file || !file->has_name) return std::nullopt;
  const auto below = Below(file->path);
  if (!below) return std::nullopt;
  const auto mode = static_cast<int>(call.arguments[1]);
  const auto begin = static_cast<int64_t>(call.arguments[2]);
  const int64_t end = begin + static_cast<int64_t>(call.arguments[3]);
  const int64_t size_before = file->size;
  return [this, mode, begin, end, size_before, below = *below](const Call& left) {
    if (left.failed()) return;
    if ((mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) != 0) {
      return Refuse(left, root_ + "/" + below, "expected no range to be collapsed or inserted");
    }
    const int64_t zeros_end = std::min(end, size_before);
    if ((mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) != 0 && begin < zeros_end) {
      Note(left, {.kind = OperationKind::kWrite,
                  .path = below,
                  .offset = begin,
                  .bytes = std::string(static_cast<size_t>(zeros_end - begin), '\0')});
    }
    if ((mode & FALLOC_FL_KEEP_SIZE) == 0 && end > size_before) {
      Note(left, {.kind = OperationKind::kTruncate, .path = below, .size = end});
    }
  };
}

TracedSave::Plan TracedSave::PlanOfSync(const Call& call) {
  const auto file = LookAt(call.thread, Fd(call.arguments[0]));
  if (!file || !file->has_name) return std::nullopt;
  const auto below = Below(file->path);
  if (!below) return std::nullopt;
  return
      [this, id = file->id(), is_directory = file->is_directory, below = *below](const Call& left) {
        // The kernel tells once of a page that it could not write, and then takes it for clean.
        if (left.failed()) unsynced_.insert(id);
        if (unsynced_.contains(id)) return;
        Note(left, {.kind = is_directory ? OperationKind::kSyncDirectory : OperationKind::kSyncFile,
                    .path = below});
      };
}

TracedSave::Plan TracedSave::PlanOfSyncAll(const Call& call) {
  if (call.number == SYS_syncfs) {
    struct stat root {};
    const auto file = LookAt(call.thread, Fd(call.arguments[0]));
    if (!file || ::stat(root_.c_str(), &root) != 0 || root.st_dev != file->device) {
      return std::nullopt;
    }
  }
  return [this](const Call& left) {
    if (left.failed()) return;
    std::vector<std::string> files;
    std::vector<std::string> directories = {""};
    std::error_code error;
    fs::recursive_directory_iterator entry(root_, error);
    for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
      const std::string below = entry->path().string().substr(root_.size() + 1);
      struct stat facts {};
      if (::lstat(entry->path().c_str(), &facts) != 0 || S_ISLNK(facts.st_mode)) continue;
      if (S_ISDIR(facts.st_mode)) {
        directories.push_back(below);
        continue;
      }
      if (!unsynced_.contains({facts.st_dev, facts.st_ino})) files.push_back(below);
    }
    // In an order that is the same on every file system.
    std::sort(files.begin(), files.end());
    std::sort(directories.begin(), directories.end());
    for (const std::string& file : files) {
      Note(left, {.kind = OperationKind::kSyncFile, .path = file});
    }
    for (const std::string& directory : directories) {
      Note(left, {.kind = OperationKind::kSyncDirectory, .path = directory});
    }
  };
}

TracedSave::Plan TracedSave::PlanOfRename(const Call& call, int from_directory, uint64_t from,
                                          int to_directory, uint64_t to, uint64_t flags) {
  const auto source = trace::ResolvePathAt(call.thread, from_directory, from);
  const auto target = trace::ResolvePathAt(call.thread, to_directory, to);
  if (!source || !target) return std::nullopt;
  const auto below_source = Below(*source);
  const auto below_target = Below(*target);
  const bool moves_root = root_ == *source || root_ == *target ||
                          root_.starts_with(*source + "/") || root_.starts_with(*target + "/");
  if (!below_source && !below_target && !moves_root) return std::nullopt;
  return [=, this](const Call& left) {
    if (left.failed()) return;
    if (moves_root) return Refuse(left, root_, "expected the directory itself to stay");
    if (!below_source || !below_target) {
      return Refuse(left, *source + " to " + *target,
                    "expected a move within " + root_ + "; a --root above both would hold it");
    }
    if ((flags & RENAME_WHITEOUT) != 0) return Refuse(left, *source, "expected no whiteout");
    Note(left, {.kind = (flags & RENAME_EXCHANGE) != 0 ? OperationKind::kExchange
                                                       : OperationKind::kRename,
                .path = *below_source,
                .other = *below_target});
  };
}

TracedSave::Plan TracedSave::PlanOfLink(const Call& call, int from_directory, uint64_t from,
                                        int to_directory, uint64_t to, uint64_t flags) {
  auto source = trace::ResolvePathAt(call.thread, from_directory, from);
  const auto target = trace::ResolvePathAt(call.thread, to_directory, to);
  if (!source || !target) return std::nullopt;
  if ((flags & AT_SYMLINK_FOLLOW) != 0) source = Followed(*source);
  const auto below_source = Below(*source);
  const auto below_target = Below(*target);
  if (!below_source && !below_target) return std::nullopt;
  return [=, this](const Call& left) {
    if (left.failed() || !below_target) return;  // a name elsewhere changes nothing here
    struct stat facts {};
    if (!below_source || ::lstat(source->c_str(), &facts) != 0) {
      return Refuse(left, *target,
                    "expected another name of a file that has one below " + root_ +
                        " (one of O_TMPFILE has none), found " + *source);
    }
    Note(left, {.kind = OperationKind::kLink, .path = *below_source, .other = *below_target});
  };
}

TracedSave::Plan TracedSave::PlanOfSymlink(const Call& call, uint64_t target, int directory,
                                           uint64_t path) {
  const auto named = trace::ResolvePathAt(call.thread, directory, path);
  const auto below = named ? Below(*named) : std::nullopt;
  const auto text = trace::ReadText(call.thread, target);
  if (!below || !text) return std::nullopt;
  return [this, path = *named, below = *below, text = *text](const Call& left) {
    if (left.failed()) return;
    const auto told = TellTarget(root_, fs::path(below).parent_path().string(), text);
    if (!told.ok()) return Refuse(left, path, told.error().message);
    Note(left, {.kind = OperationKind::kSymlink, .path = below, .other = told.value()});
  };
}

TracedSave::Plan TracedSave::PlanOfName(OperationKind kind, const Call& call, int directory,
                                        uint64_t path) {
  const auto named = trace::ResolvePathAt(call.thread, directory, path);
  const auto below = named ? Below(*named) : std::nullopt;
  if (!below) return std::nullopt;
  return [this, kind, below = *below](const Call& left) {
    if (left.failed()) return;
    if (below.empty()) return Refuse(left, root_, "expected the directory itself to stay");
    Note(left, {.kind = kind, .path = below});
  };
}

TracedSave::Plan TracedSave::PlanOfRefusal(const Call& call, int directory, uint64_t path,
                                           const std::string& expected) {
  const auto named = trace::ResolvePathAt(call.thread, directory, path);
  if (!named || !Below(*named)) return std::nullopt;
  return [this, path = *named, expected](const Call& left) {
    if (!left.failed()) Refuse(left, path, expected);
  };
}

TracedSave::Finish TracedSave::RefuseOtherRoot() {
  return [this](const Call& left) {
    if (!left.failed()) Refuse(left, root_, "expected the mounts and the root to stay");
  };
}

void TracedSave::NoteMapping(const Call& call) {
  const uint64_t kind = call.arguments[3] & MAP_TYPE;
  if ((kind != MAP_SHARED && kind != MAP_SHARED_VALIDATE) || Fd(call.arguments[4]) < 0) return;
  const auto file = LookAt(call.thread, Fd(call.arguments[4]));
  if (!file || !file->can_write) return;
  if (Below(file->path)) mapped_.insert(file->id());
}

}  // namespace shardproof::crash
