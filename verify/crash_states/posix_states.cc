// The machine crashes, on a file system that keeps what POSIX promises of fsync and no more. The
// rules stand in states.h; what they come from:
// - fsync(2): "does not necessarily ensure that the entry in the directory containing the file has
//   also reached disk. For that an explicit fsync() on a file descriptor for the directory is also
//   needed."
// - A page is written back as it is then: where a later write to a block is left, so are the
//   earlier ones.
// - rename(2) is atomic, so it is lost as a whole. A sync of one of two directories promises
//   nothing of the other: then, and only then, the halves part.
// - What could only be done because of an earlier change goes with that: a change of a name with
//   the earlier ones of that name, a move into a directory with the directory's own name, the
//   removal of a directory with the removal of what was in it.
// Not among the states, though no standard rules them out: bytes that nobody wrote to the file,
// and directories that are damaged.
#include <fmt/format.h>

#include <set>
#include <utility>

#include "verify/crash_states/posix_items.h"

namespace shardproof::crash {
namespace {

constexpr int64_t kNever = INT64_MAX;

class Point {
 public:
  Point(const History& history, const StateOptions& options, int64_t after)
      : history_(history),
        options_(options),
        after_(after),
        syncs_(LastSyncs(history, after)),
        data_(DataChanges(history, after)),
        items_(ItemsOf(history, options, after, syncs_)),
        nothing_lost_(history.base) {
    for (const auto& [inode, data] : data_) {
      nothing_lost_.SetContent(inode, history.after[after].Content(inode));
    }
  }

  Status Visit(const MakeVisitor& visit) const {
    return VisitChoices(ChoicesOf(history_, items_),
                        {options_.combinations_max, options_.choices_max},
                        options_.seed * 1000003 + after_, [&](const Picks& picks) -> Status {
                          CrashState state;
                          state.after = after_;
                          state.disk = nothing_lost_;
                          Losses losses(history_);
                          MakeNames(picks, state.disk, losses);
                          // Of changes that are possible one by one, no file system makes a loop.
                          if (state.disk.HasLoop()) return Ok();
                          MakeContents(picks, state.disk, losses);
                          losses.TellIn(state);
                          return visit(std::move(state));
                        });
  }

 private:
  void MakeNames(const Picks& picks, Disk& disk, Losses& losses) const {
    std::set<std::pair<Inode, std::string>> lost_names;
    size_t item = 0;
    for (int64_t i = 0; i < after_; ++i) {
      const std::vector<NameChange>& names = history_.change(i).names;
      if (names.empty()) continue;
      const bool is_item = item < items_.names.size() && items_.names[item].index == i;
      const bool picked = is_item && picks[item] != 0;
      if (is_item) ++item;
      bool any_durable = false;
      bool any_lost = picked || LacksPrerequisite(history_.change(i), disk);
      std::vector<bool> lost(names.size(), false);
      for (size_t half = 0; half < names.size(); ++half) {
        const NameChange& name = names[half];
        const bool durable = i < syncs_[name.directory];
        any_durable = any_durable || durable;
        lost[half] = !durable && (any_lost || lost_names.contains({name.directory, name.name}));
      }
      for (const bool half : lost) any_lost = any_lost || half;
      // Only what is durable in part is lost in part.
      if (any_lost && !any_durable) lost.assign(names.size(), true);
      Note(i, lost, losses);
      for (size_t half = 0; half < names.size(); ++half) {
        if (lost[half])
          lost_names.insert({names[half].directory, names[half].name});
        else
          disk.SetName(names[half]);
      }
    }
  }

  /// Whether, with what was lost before, the change could not have been made.
  static bool LacksPrerequisite(const Change& change, const Disk& disk) {
    const Inode removed = change.kind == OperationKind::kRemoveDirectory ? change.inode
                          : change.kind == OperationKind::kRename        ? change.other
                                                                         : kNoInode;
    if (removed != kNoInode && disk.IsDirectory(removed) && !disk.Names(removed).empty())
      return true;
    if (change.names.size() < 2 || change.names[0].directory == change.names[1].directory)
      return false;
    const std::vector<bool> linked = disk.Linked();
    return !linked[change.names[0].directory] || !linked[change.names[1].directory];
  }

  void Note(int64_t index, const std::vector<bool>& lost, Losses& losses) const {
    const std::vector<NameChange>& names = history_.change(index).names;
    if (lost[0] && lost.back()) return losses.Lost(index);
    for (size_t half = 0; half < names.size(); ++half) {
      if (!lost[half]) continue;
      losses.Other(index, fmt::format("of {}, what it does to the name '{}' in one directory",
                                      losses.Words(index), names[half].name));
    }
  }

  void MakeContents(const Picks& picks, Disk& disk, Losses& losses) const {
    std::map<Inode, std::vector<LostBytes>> lost;
    std::map<Inode, SizeMoment> sizes;
    const std::vector<bool> linked = disk.Linked();
    for (size_t i = 0; i < items_.writes.size(); ++i) {
      const int64_t pick = picks[items_.WriteAt(i)];
      if (pick == 0) continue;
      const WriteItem& item = items_.writes[i];
      const LostBytes& bytes = item.losses[pick - 1];
      const Inode inode = history_.change(item.index).inode;
      lost[inode].push_back(bytes);
      if (!linked[inode]) continue;
      if (pick == static_cast<int64_t>(item.losses.size()))
        losses.Lost(item.index);
      else
        losses.Torn(item.index, fmt::format("without [{}, {})", bytes.begin, bytes.end));
    }
    for (size_t i = 0; i < items_.sizes.size(); ++i) {
      const int64_t pick = picks[items_.SizeAt(i)];
      if (pick == 0) continue;
      const SizeItem& item = items_.sizes[i];
      sizes[item.inode] = item.moments[pick];
      lost.try_emplace(item.inode);
      if (!linked[item.inode]) continue;
      const int64_t index = item.moments[pick - 1].done - 1;
      losses.Other(index, fmt::format("the size behind {} bytes that {} gave",
                                      item.moments[pick].size, losses.Words(index)));
    }
    for (const auto& [inode, bytes] : lost) {
      const SizeMoment latest{kNever, history_.after[after_].Content(inode).size()};
      const auto size = sizes.find(inode);
      disk.SetContent(inode, ContentOf(inode, bytes, size == sizes.end() ? latest : size->second));
    }
  }

  FileContent ContentOf(Inode inode, const std::vector<LostBytes>& lost, SizeMoment size) const {
    FileContent content = history_.base.Content(inode);
    bool is_cut_off_lost = false;
    for (const int64_t i : data_.at(inode)) {
      const Change& change = history_.change(i);
      if (change.kind == OperationKind::kTruncate) {
        if (i < size.done)
          content.Resize(change.size_after);
        else if (change.size_after < change.size_before)
          is_cut_off_lost = true;
      } else if (change.kind == OperationKind::kWrite && !is_cut_off_lost) {
        WriteWithout(lost, i, content);
      }
    }
    content.Resize(size.size);
    return content;
  }

  /// Writes the blocks that neither this write nor an earlier one to them lost.
  void WriteWithout(const std::vector<LostBytes>& lost, int64_t index, FileContent& content) const {
    const Change& write = history_.change(index);
    const int64_t block = options_.block_bytes;
    std::vector<std::pair<int64_t, int64_t>> left = {
        {write.offset, write.offset + static_cast<int64_t>(write.bytes->size())}};
    for (const LostBytes& bytes : lost) {
      if (bytes.index > index) continue;
      const int64_t begin = bytes.begin / block * block;
      const int64_t end = (bytes.end + block - 1) / block * block;
      std::vector<std::pair<int64_t, int64_t>> rest;
      for (const auto& [from, to] : left) {
        if (from < std::min(to, begin)) rest.push_back({from, std::min(to, begin)});
        if (std::max(from, end) < to) rest.push_back({std::max(from, end), to});
      }
      left = std::move(rest);
    }
    for (const auto& [from, to] : left) {
      content.Write(from, write.bytes, from - write.offset, to - write.offset);
    }
  }

  const History& history_;
  const StateOptions& options_;
  const int64_t after_;
  const std::vector<int64_t> syncs_;
  const std::map<Inode, std::vector<int64_t>> data_;
  const PosixItems items_;
  Disk nothing_lost_;  ///< but the names, which are those of before
};

}  // namespace

Status VisitPosixStates(const History& history, const StateOptions& options,
                        const MakeVisitor& visit) {
  for (const int64_t after : CrashPoints(history, options.points_max)) {
    const Point point(history, options, after);
    SP_TRY(point.Visit(visit));
  }
  return Ok();
}

}  // namespace shardproof::crash
