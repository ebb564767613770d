// Records what somebody else's program does to a directory, from its system calls (verify/trace).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/crash_states/disk.h"
#include "verify/crash_states/operation.h"
#include "verify/trace/tracer.h"

namespace shardproof::crash {

/// Listens to a program and all that comes of it. Calls that change what is below the directory are
/// done one at a time, the others of the tree wait, so that the order is that in which they were
/// done; `rank` is the process, numbered in the order in which they first change something.
///
/// | call                             | recorded as                                             |
/// |----------------------------------|---------------------------------------------------------|
/// | open that makes or empties       | a create, a truncate to 0                               |
/// | write, pwrite, sendfile, ...     | a write of what the file then holds there               |
/// | ftruncate, fallocate             | a truncate; zeros written where a hole was punched      |
/// | fsync, fdatasync                 | a sync, if it succeeded and no sync of the file failed  |
/// | sync, syncfs                     | a sync of everything below the directory                |
/// | write to a file of O_SYNC        | a write and a sync                                      |
/// | sync_file_range                  | nothing: it promises nothing                            |
/// | io_uring_setup, io_setup, clones | nothing: the program is told that there is no such call |
///
/// Refused, once done: a move across the directory's border or of itself, a link to what has no
/// name in it, another root or mounts. A file that is changed through a shared mapping is found at
/// the end, and refused.
class TracedSave : public trace::Listener {
 public:
  /// \param root       the directory that is looked at
  /// \param bytes_max  the program is ended when it has written more
  /// \error kBadInput if there is no such directory
  static Result<TracedSave> Make(const std::string& root, int64_t bytes_max);

  /// Of which it must be told.
  static std::vector<long> Calls();

  trace::Decision Enter(const trace::Call& call) override;
  void Leave(const trace::Call& call) override;
  void Gone(pid_t thread) override;

  /// When the program has ended: what it did, which done to `before` gives what is there now.
  /// \error kUnsupported naming path and call if something was done that cannot be told so, or
  ///   naming the first path that holds something else than what was recorded.
  Result<std::vector<FileOperation>> Operations(const Disk& before) const;
  /// One line each; what the program was denied.
  const std::set<std::string>& notices() const { return notices_; }

 private:
  /// What a call has done, to be called if it has succeeded.
  using Finish = std::function<void(const trace::Call&)>;
  /// Of a call that changes nothing that is looked at: nothing.
  using Plan = std::optional<Finish>;

  TracedSave() = default;

  /// Of any call. Each of these knows the calls of one kind, and passes on the others.
  Plan PlanOf(const trace::Call& call);  ///< what a file holds, and its syncs
  Plan PlanOfNames(const trace::Call& call);
  Plan PlanOfOthers(const trace::Call& call);  ///< mappings, rings, mounts

  Plan PlanOfOpen(const trace::Call& call, int directory, uint64_t path, uint64_t flags);
  Plan PlanOfWrite(const trace::Call& call, int descriptor, std::optional<int64_t> offset,
                   uint64_t write_flags = 0);
  Plan PlanOfResize(const trace::Call& call, const std::string& path, int64_t size);
  Plan PlanOfFallocate(const trace::Call& call);
  Plan PlanOfSync(const trace::Call& call);
  Plan PlanOfSyncAll(const trace::Call& call);
  Plan PlanOfRename(const trace::Call& call, int from_directory, uint64_t from, int to_directory,
                    uint64_t to, uint64_t flags);
  Plan PlanOfLink(const trace::Call& call, int from_directory, uint64_t from, int to_directory,
                  uint64_t to, uint64_t flags);
  Plan PlanOfSymlink(const trace::Call& call, uint64_t target, int directory, uint64_t path);
  Plan PlanOfName(OperationKind kind, const trace::Call& call, int directory, uint64_t path);
  Plan PlanOfRefusal(const trace::Call& call, int directory, uint64_t path,
                     const std::string& expected);
  Finish RefuseOtherRoot();
  void NoteMapping(const trace::Call& call);

  /// Relative to `root_`; nothing if it is not below it.
  std::optional<std::string> Below(const std::string& path) const;
  void Note(const trace::Call& call, FileOperation operation);
  void Refuse(const trace::Call& call, const std::string& path, const std::string& expected);

  std::string root_;
  int64_t bytes_max_ = 0;
  int64_t bytes_ = 0;
  std::vector<FileOperation> operations_;
  std::map<pid_t, int64_t> ranks_;                    ///< by process
  std::optional<pid_t> in_flight_;                    ///< the thread whose call is being done
  Finish finish_;                                     ///< of that call
  std::set<std::pair<uint64_t, uint64_t>> unsynced_;  ///< device and inode: a sync has failed
  /// Shared and to be written: device and inode, since a file may be renamed.
  std::set<std::pair<uint64_t, uint64_t>> mapped_;
  std::set<std::string> notices_;
  std::optional<Error> error_;
};

}  // namespace shardproof::crash
