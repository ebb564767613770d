// The machine crashes, on ext4 as it is mounted by default: data=ordered, delalloc, auto_da_alloc.
//
// What is modelled, and from where (Documentation/admin-guide/ext4.rst and fs/ext4 of the Linux
// kernel):
// - Names and sizes that a call sets (create, truncate, mkdir, rename, unlink, ...) go through the
//   journal in order, each call whole: of these changes a prefix is left. Its end is the *commit*
//   below, which happens at any time (by default every 5 s).
// - fsync of a file or directory commits the transaction in which that inode was last changed
//   (ext4_sync_file: i_sync_tid), hence all that was done up to then; not what was done to others
//   since, if a commit came between. So the commit is at or behind the last change of each inode
//   that was synced.
// - delalloc: a file's bytes get blocks when they are written back, at any time, and the size that
//   a write gives follows them (option commit: "even older data can be lost on power failure").
//   data=ordered: "All data are forced directly out to the main file system prior to its metadata
//   being committed to the journal." So bytes that were not written back are missing where the
//   write made the file longer, and zeros where a truncate had. Left is a prefix of a file's
//   writes, of the last one up to some page.
// - What needs new blocks is left only with a commit behind it. A write over blocks that were
//   durable before needs none: it may be left although names that were changed earlier are not.
// - fsync of a file: its bytes are left.
// - auto_da_alloc: "ext4 will detect the replace-via-rename and replace-via-truncate patterns and
//   force that any delayed allocation blocks are allocated such that at the next journal commit,
//   in the default data=ordered mode, the data blocks of the new file are forced to disk before
//   the rename() operation is committed." Where a rename over a file is left, so are the bytes of
//   the one that replaced it; not with a rename to a new name or of a directory, nor with an
//   exchange (ext4_cross_rename flushes nothing). Where a truncate to nothing is left, so are the
//   writes after it up to the commit: it is done at close(), which no operation tells of, so that
//   some states that can happen are not made.
// The documentation is followed where the code does less: a maintainer calls the flush at a rename
// a shorter window, not a guarantee (linux-ext4, 2022-09-01,
// 20220901083706.mjewb45dufzxcfdk@quack3). Who does not want to rely on it judges by posix. Not
// modelled: fast_commit, data=writeback, nobarrier, disks that lie about their cache.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "verify/crash_states/choices.h"
#include "verify/crash_states/history.h"

namespace shardproof::crash {
namespace {

/// How many of a file's writes are there, and how far the next one is.
struct Cut {
  int64_t kept = 0;
  int64_t tear = -1;  ///< offset in the file; -1: nothing of it
};

struct FileChoices {
  Inode inode = kNoInode;
  std::vector<int64_t> data;    ///< indices of its creates, truncates, writes
  std::vector<int64_t> writes;  ///< of its writes
  std::vector<Cut> cuts;        ///< the first one keeps most
};

bool Touches(const Change& change, Inode inode) {
  if (change.kind == OperationKind::kSyncFile || change.kind == OperationKind::kSyncDirectory)
    return false;
  if (change.inode == inode || change.other == inode) return true;
  return std::any_of(change.names.begin(), change.names.end(),
                     [&](const NameChange& name) { return name.directory == inode; });
}

/// The first commit that the syncs among the first `after` operations leave possible.
int64_t FirstCommit(const History& history, int64_t after) {
  int64_t commit = 0;
  for (int64_t sync = 0; sync < after; ++sync) {
    const Change& change = history.change(sync);
    if (change.kind != OperationKind::kSyncFile && change.kind != OperationKind::kSyncDirectory)
      continue;
    for (int64_t i = sync; i-- > commit;) {
      if (Touches(history.change(i), change.inode)) commit = i + 1;
    }
  }
  return commit;
}

int64_t CountBelow(const std::vector<int64_t>& sorted, int64_t index) {
  return std::lower_bound(sorted.begin(), sorted.end(), index) - sorted.begin();
}

/// What files hold, made once for all the points that leave it: the same few cuts are in most
/// states.
class Contents {
 public:
  explicit Contents(const History& history) : history_(history) {}

  const FileContent& Of(const FileChoices& file, const Cut& cut, int64_t commit) {
    int64_t sized = 0;
    for (const int64_t i : file.data) {
      if (i < commit && history_.change(i).kind == OperationKind::kTruncate) ++sized;
    }
    const auto [known, is_new] =
        made_.try_emplace(std::make_tuple(file.inode, cut.kept, cut.tear, sized));
    if (is_new) {
      known->second = Make(file, cut, commit);
      known->second.Hash();  // its copies have it too
    }
    return known->second;
  }

 private:
  FileContent Make(const FileChoices& file, const Cut& cut, int64_t commit) const {
    FileContent content = history_.base.Content(file.inode);
    int64_t write_index = 0;
    for (const int64_t i : file.data) {
      const Change& change = history_.change(i);
      if (change.kind == OperationKind::kTruncate && i < commit) content.Resize(change.size_after);
      if (change.kind != OperationKind::kWrite) continue;
      if (write_index < cut.kept) {
        content.Write(change.offset, change.bytes, 0, static_cast<int64_t>(change.bytes->size()));
      } else if (write_index == cut.kept && cut.tear >= 0) {
        content.Write(change.offset, change.bytes, 0, cut.tear - change.offset);
      }
      ++write_index;
    }
    return content;
  }

  const History& history_;
  std::map<std::tuple<Inode, int64_t, int64_t, int64_t>, FileContent> made_;
};

/// One crash, after so many operations, with the journal committed up to one of them.
class CommitPoint {
 public:
  CommitPoint(const History& history, const StateOptions& options, int64_t after, int64_t commit)
      : history_(history), options_(options), after_(after), commit_(commit) {
    const std::vector<int64_t> syncs = LastSyncs(history, after);
    const std::vector<bool> linked = history.after[commit].Linked();
    for (auto& [inode, data] : DataChanges(history, after)) {
      if (inode >= static_cast<Inode>(linked.size()) || !linked[inode]) continue;
      FileChoices file{inode, data, {}, {}};
      for (const int64_t i : data) {
        if (history.change(i).kind == OperationKind::kWrite) file.writes.push_back(i);
      }
      if (file.writes.empty()) continue;
      AddCuts(file, syncs[inode]);
      files_.push_back(std::move(file));
    }
  }

  /// Whether a write behind the commit may be there.
  bool HasLateWrites() const { return has_late_writes_; }

  Status Visit(Contents& contents, const MakeVisitor& visit) const {
    Choices choices;
    for (const FileChoices& file : files_) {
      choices.counts.push_back(static_cast<int64_t>(file.cuts.size()));
    }
    const uint64_t seed = options_.seed * 1000003 + after_ * 1009 + commit_;
    return VisitChoices(choices, {options_.combinations_max, options_.choices_max}, seed,
                        [&](const Picks& picks) { return visit(Make(picks, contents)); });
  }

 private:
  void AddCuts(FileChoices& file, int64_t sync) {
    int64_t least = CountBelow(file.writes, sync);
    for (int64_t i = 0; i < commit_; ++i) {
      const Change& change = history_.change(i);
      if (change.inode != file.inode) continue;
      if (change.kind == OperationKind::kRename && change.other != kNoInode) {
        least = std::max(least, CountBelow(file.writes, i));
      } else if (change.kind == OperationKind::kTruncate && change.size_after == 0 &&
                 change.size_before > 0) {
        least = CountBelow(file.writes, commit_);
      }
    }
    int64_t most = CountBelow(file.writes, commit_);
    while (most < static_cast<int64_t>(file.writes.size()) &&
           NeedsNoBlocks(file, file.writes[most], sync)) {
      ++most;
      has_late_writes_ = true;
    }
    for (int64_t kept = most; kept >= least; --kept) {
      if (kept < most) {
        std::vector<int64_t> tears = Tears(history_.change(file.writes[kept]), options_);
        std::reverse(tears.begin(), tears.end());
        for (const int64_t tear : tears) file.cuts.push_back({kept, tear});
      }
      file.cuts.push_back({kept, -1});
    }
  }

  bool NeedsNoBlocks(const FileChoices& file, int64_t write, int64_t sync) const {
    for (const int64_t i : file.data) {
      if (i >= sync && i < write && history_.change(i).kind == OperationKind::kTruncate)
        return false;
    }
    const Disk& durable = history_.after[sync];
    const Change& change = history_.change(write);
    return file.inode < durable.inode_count() && !change.bytes->empty() &&
           durable.Content(file.inode)
               .IsWritten(change.offset,
                          change.offset + static_cast<int64_t>(change.bytes->size()));
  }

  CrashState Make(const Picks& picks, Contents& contents) const {
    CrashState state;
    state.after = after_;
    state.disk = history_.after[commit_];
    Losses losses(history_);
    for (int64_t i = commit_; i < after_; ++i) {
      const Change& change = history_.change(i);
      if (!change.names.empty() || change.kind == OperationKind::kTruncate) losses.Lost(i);
    }
    for (size_t item = 0; item < files_.size(); ++item) {
      const FileChoices& file = files_[item];
      const Cut& cut = file.cuts[picks[item]];
      state.disk.SetContent(file.inode, contents.Of(file, cut, commit_));
      for (size_t i = cut.kept; i < file.writes.size(); ++i) {
        const bool torn = cut.tear >= 0 && static_cast<int64_t>(i) == cut.kept;
        if (torn)
          losses.Torn(file.writes[i], fmt::format("at {}", cut.tear));
        else
          losses.Lost(file.writes[i]);
      }
    }
    losses.TellIn(state);
    return state;
  }

  const History& history_;
  const StateOptions& options_;
  const int64_t after_;
  const int64_t commit_;
  std::vector<FileChoices> files_;
  bool has_late_writes_ = false;
};

}  // namespace

Status VisitExt4States(const History& history, const StateOptions& options,
                       const MakeVisitor& visit) {
  Contents contents(history);
  const std::vector<int64_t> points = CrashPoints(history, options.points_max);
  for (const int64_t after : points) {
    const int64_t first_commit = FirstCommit(history, after);
    for (const int64_t commit : points) {
      if (commit < first_commit || commit > after) continue;
      const CommitPoint point(history, options, after, commit);
      // Without late writes this is what an earlier crash leaves too, and less is allowed only once
      // the save has returned.
      if (commit < after && after < history.count() && !point.HasLateWrites()) continue;
      SP_TRY(point.Visit(contents, visit));
    }
  }
  return Ok();
}

}  // namespace shardproof::crash
