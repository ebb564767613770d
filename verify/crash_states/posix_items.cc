#include "verify/crash_states/posix_items.h"

#include <algorithm>
#include <set>

namespace shardproof::crash {
namespace {

WriteItem ItemOf(const Change& write, int64_t index, const StateOptions& options) {
  const int64_t end = write.offset + static_cast<int64_t>(write.bytes->size());
  const std::vector<int64_t> tears = Tears(write, options);
  WriteItem item{index, {}};
  // The first blocks are missing, the last ones are, all are.
  if (!tears.empty()) item.losses.push_back({index, write.offset, tears.front()});
  for (auto tear = tears.rbegin(); tear != tears.rend(); ++tear) {
    item.losses.push_back({index, *tear, end});
  }
  item.losses.push_back({index, write.offset, end});
  return item;
}

SizeItem SizesOf(const History& history, const StateOptions& options, Inode inode,
                 const std::vector<int64_t>& data, int64_t sync) {
  SizeItem item{inode, {}};
  for (const int64_t i : data) {
    const Change& change = history.change(i);
    if (i < sync) continue;
    if (item.moments.empty()) {
      const bool is_create = change.kind == OperationKind::kCreate;
      item.moments.push_back(
          {is_create ? i + 1 : i, is_create ? change.size_after : change.size_before});
      if (is_create) continue;
    }
    if (change.size_after == change.size_before) continue;
    if (change.kind == OperationKind::kWrite) {
      // The size grows while the write goes on.
      for (const int64_t tear : Tears(change, options)) {
        if (tear > change.size_before && tear < change.size_after)
          item.moments.push_back({i + 1, tear});
      }
    }
    item.moments.push_back({i + 1, change.size_after});
  }
  std::reverse(item.moments.begin(), item.moments.end());
  return item;
}

bool IsDurable(const NameChange& name, int64_t index, const std::vector<int64_t>& syncs) {
  return index < syncs[name.directory];
}

}  // namespace

PosixItems ItemsOf(const History& history, const StateOptions& options, int64_t after,
                   const std::vector<int64_t>& syncs) {
  PosixItems items;
  for (int64_t i = 0; i < after; ++i) {
    const Change& change = history.change(i);
    const bool all_durable =
        std::all_of(change.names.begin(), change.names.end(),
                    [&](const NameChange& name) { return IsDurable(name, i, syncs); });
    if (!all_durable) items.names.push_back({i});
    if (change.kind == OperationKind::kWrite && !change.bytes->empty() &&
        i >= syncs[change.inode]) {
      items.writes.push_back(ItemOf(change, i, options));
    }
  }
  for (const auto& [inode, data] : DataChanges(history, after)) {
    SizeItem item = SizesOf(history, options, inode, data, syncs[inode]);
    if (item.moments.size() > 1) items.sizes.push_back(std::move(item));
  }
  return items;
}

Choices ChoicesOf(const History& history, const PosixItems& items) {
  Choices choices;
  choices.counts.assign(items.names.size(), 2);
  for (const WriteItem& item : items.writes) {
    choices.counts.push_back(1 + static_cast<int64_t>(item.losses.size()));
  }
  for (const SizeItem& item : items.sizes) {
    choices.counts.push_back(static_cast<int64_t>(item.moments.size()));
  }
  const Picks kept(choices.counts.size(), 0);
  std::map<Inode, Picks> of_directory;
  std::map<Inode, Picks> bytes_of_file;
  Picks names = kept;
  Picks bytes = kept;
  for (size_t i = 0; i < items.names.size(); ++i) {
    names[i] = 1;
    for (const NameChange& name : history.change(items.names[i].index).names) {
      of_directory.try_emplace(name.directory, kept).first->second[i] = 1;
    }
  }
  for (size_t i = 0; i < items.writes.size(); ++i) {
    const size_t at = items.WriteAt(i);
    bytes[at] = choices.counts[at] - 1;
    const Inode inode = history.change(items.writes[i].index).inode;
    bytes_of_file.try_emplace(inode, kept).first->second[at] = bytes[at];
  }
  Picks bytes_and_sizes = bytes;
  for (size_t i = 0; i < items.sizes.size(); ++i) {
    const size_t at = items.SizeAt(i);
    const SizeItem& item = items.sizes[i];
    bytes_and_sizes[at] = choices.counts[at] - 1;
    Picks file = kept;
    if (bytes_of_file.contains(item.inode)) file = bytes_of_file[item.inode];
    file[at] = choices.counts[at] - 1;
    choices.also.push_back(file);
    for (size_t write = 0; write < items.writes.size(); ++write) {
      const int64_t index = items.writes[write].index;
      if (history.change(index).inode != item.inode) continue;
      for (size_t moment = 0; moment + 1 < item.moments.size(); ++moment) {
        // A size that this write gave: what there was before comes with the loss of all of it, and
        // one of a tear with the loss of what is behind that.
        if (item.moments[moment].done != index + 1) continue;
        const std::vector<LostBytes>& losses = items.writes[write].losses;
        for (size_t loss = 0; loss < losses.size(); ++loss) {
          const bool at_tear = losses[loss].begin == item.moments[moment + 1].size;
          if (!at_tear && loss + 1 < losses.size()) continue;
          Picks both = kept;
          both[items.WriteAt(write)] = static_cast<int64_t>(loss) + 1;
          both[at] = static_cast<int64_t>(moment) + 1;
          choices.also.push_back(both);
        }
      }
    }
  }
  for (const Picks& group : {names, bytes, bytes_and_sizes}) choices.also.push_back(group);
  for (const auto& [inode, group] : of_directory) choices.also.push_back(group);
  for (const auto& [inode, group] : bytes_of_file) choices.also.push_back(group);
  return choices;
}

}  // namespace shardproof::crash
