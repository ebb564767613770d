#include "verify/crash_states/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace shardproof::crash {
namespace {

constexpr size_t kNamedMax = 6;  // losses in a line

}  // namespace

Result<History> ResolveAll(const Disk& before, const std::vector<FileOperation>& operations) {
  History history{operations, before, {}, {before}, before};
  for (const FileOperation& operation : operations) {
    Disk disk = history.after.back();
    SP_ASSIGN(Change change, disk.Resolve(operation));
    disk.Apply(change);
    if (MakesInode(change.kind)) history.base.AddInode(change);
    history.changes.push_back(std::move(change));
    history.after.push_back(std::move(disk));
  }
  return history;
}

std::vector<int64_t> CrashPoints(const History& history, int64_t points_max) {
  std::set<int64_t> points = {0, history.count()};
  std::vector<int64_t> first;  // after what is no write
  std::vector<int64_t> others;
  for (int64_t after = 1; after < history.count(); ++after) {
    const bool is_write = history.change(after - 1).kind == OperationKind::kWrite;
    (is_write ? others : first).push_back(after);
  }
  for (const std::vector<int64_t>& some : {first, others}) {
    const int64_t count = static_cast<int64_t>(some.size());
    const int64_t taken =
        std::clamp<int64_t>(points_max - static_cast<int64_t>(points.size()), 0, count);
    for (int64_t i = 0; i < taken; ++i) points.insert(some[i * count / taken]);
  }
  return {points.begin(), points.end()};
}

std::vector<int64_t> LastSyncs(const History& history, int64_t after) {
  std::vector<int64_t> last(history.base.inode_count(), 0);
  for (int64_t i = 0; i < after; ++i) {
    const Change& change = history.change(i);
    if (change.kind == OperationKind::kSyncFile || change.kind == OperationKind::kSyncDirectory) {
      last[change.inode] = i;
    }
  }
  return last;
}

std::map<Inode, std::vector<int64_t>> DataChanges(const History& history, int64_t after) {
  std::map<Inode, std::vector<int64_t>> all;
  for (int64_t i = 0; i < after; ++i) {
    const OperationKind kind = history.change(i).kind;
    if (kind == OperationKind::kWrite || kind == OperationKind::kTruncate ||
        kind == OperationKind::kCreate) {
      all[history.change(i).inode].push_back(i);
    }
  }
  return all;
}

std::vector<int64_t> Tears(const Change& write, const StateOptions& options) {
  const int64_t block = options.block_bytes;
  const int64_t end = write.offset + static_cast<int64_t>(write.bytes->size());
  const int64_t first = write.offset / block + 1;  // boundaries, in blocks
  const int64_t last = (end - 1) / block;
  const int64_t count = last - first + 1;
  std::vector<int64_t> tears;
  for (int64_t i = 0; i < std::min(count, options.tears_max); ++i) {
    const int64_t among = options.tears_max == 1 || count <= options.tears_max
                              ? i
                              : i * (count - 1) / (options.tears_max - 1);
    tears.push_back((first + among) * block);
  }
  return tears;
}

std::string Losses::Join(const std::vector<Loss>& losses) {
  std::string line;
  for (size_t i = 0; i < losses.size() && i < kNamedMax; ++i) {
    line += (i == 0 ? "" : ", ") + losses[i].what;
  }
  if (losses.size() > kNamedMax) line += fmt::format(" and {} more", losses.size() - kNamedMax);
  return line;
}

void Losses::TellIn(CrashState& state) const {
  state.what = "nothing lost";
  if (lost_.empty() && torn_.empty()) return;
  state.lacks = (lost_.empty() ? torn_ : lost_).front().index;
  state.what = lost_.empty() ? "" : "lost: " + Join(lost_);
  if (torn_.empty()) return;
  state.what += (lost_.empty() ? "torn: " : "; torn: ") + Join(torn_);
}

}  // namespace shardproof::crash
