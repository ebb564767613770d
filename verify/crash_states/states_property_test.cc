// What is true of all states of all recordings: short random ones, each step of which is possible.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "verify/crash_states/fixture_operations.h"
#include "verify/crash_states/history.h"

namespace shardproof::crash {
namespace {

const std::vector<std::string> kPaths = {"a", "b", "d", "d/a", "d/b", "e", "e/a", "e/d"};

Disk WithTwoFiles() {
  return DiskOf({MakeDirectory("d"), Create("a"), Write("a", 0, "OLDER"), Create("d/b"),
                 Write("d/b", 0, "OLD")});
}

FileOperation AnyOperation() {
  FileOperation operation;
  operation.kind = static_cast<OperationKind>(*rc::gen::inRange(0, 12));
  operation.path = *rc::gen::elementOf(kPaths);
  operation.other = *rc::gen::elementOf(kPaths);
  operation.offset = *rc::gen::inRange(0, 7);
  operation.bytes = std::string(*rc::gen::inRange(1, 9), *rc::gen::inRange('p', 'z'));
  operation.size = *rc::gen::inRange(0, 10);
  if (operation.kind == OperationKind::kSyncDirectory && *rc::gen::inRange(0, 2) == 0)
    operation.path = "";
  return operation;
}

/// So many that can be done one after the other.
Operations AnyOperations(int64_t count) {
  Operations operations;
  Disk disk = WithTwoFiles();
  for (int tries = 0; tries < 400 && static_cast<int64_t>(operations.size()) < count; ++tries) {
    const FileOperation operation = AnyOperation();
    if (disk.Apply(operation).ok()) Append(operations, {operation});
  }
  return operations;
}

std::vector<CrashState> StatesOf(const Operations& operations, CrashModel model,
                                 int64_t combinations_max) {
  StateOptions options = SmallBlocks();
  options.models = {model};
  options.combinations_max = combinations_max;
  std::vector<CrashState> states;
  const auto counts =
      VisitStates(WithTwoFiles(), operations, options, [&](const CrashState& state) {
        states.push_back(state);
        return Ok();
      });
  RC_ASSERT(counts.ok());
  return states;
}

/// Syncs of all files and directories that `disk` has.
Operations SyncsOfAll(const Disk& disk, Inode directory = kRootInode,
                      const std::string& path = "") {
  Operations operations = {SyncDirectory(path)};
  for (const auto& [name, inode] : disk.Names(directory)) {
    const std::string child = path.empty() ? name : path + "/" + name;
    if (disk.IsDirectory(inode))
      Append(operations, SyncsOfAll(disk, inode, child));
    else if (!disk.IsLink(inode))
      operations.push_back(SyncFile(child));
  }
  return operations;
}

RC_GTEST_PROP(StatesProperty, EveryKillStateIsAPrefix, ()) {
  const Operations operations = AnyOperations(10);
  std::vector<Disk> prefixes = {WithTwoFiles()};
  for (const FileOperation& operation : operations) {
    prefixes.push_back(prefixes.back());
    RC_ASSERT(prefixes.back().Apply(operation).ok());
  }
  const std::vector<CrashState> states = StatesOf(operations, CrashModel::kKill, 100);
  for (const CrashState& state : states) {
    if (!state.in_flight) {
      RC_ASSERT(state.disk == prefixes[state.after]);
      continue;
    }
    bool found = false;
    FileOperation write = operations[state.after];
    RC_ASSERT(write.kind == OperationKind::kWrite);
    while (write.bytes.size() > 1) {
      write.bytes.pop_back();
      Disk torn = prefixes[state.after];
      RC_ASSERT(torn.Apply(write).ok());
      found = found || ((write.offset + write.bytes.size()) % 4 == 0 && torn == state.disk);
    }
    RC_ASSERT(found);
  }
  for (const Disk& prefix : prefixes) {
    RC_ASSERT(std::any_of(states.begin(), states.end(),
                          [&](const CrashState& state) { return state.disk == prefix; }));
  }
}

/// Told from the recording alone, without what the models know: what was synced last and not
/// changed since.
RC_GTEST_PROP(StatesProperty, EveryPosixStateKeepsWhatIsDurable, ()) {
  const Operations operations = AnyOperations(14);
  const auto history = ResolveAll(WithTwoFiles(), operations);
  RC_ASSERT(history.ok());
  for (const CrashState& state : StatesOf(operations, CrashModel::kPosix, 60)) {
    RC_ASSERT(!state.disk.HasLoop());
    for (int64_t sync = 0; sync < state.after; ++sync) {
      const Change& change = history.value().change(sync);
      const Disk& then = history.value().after[sync];
      std::set<std::string> changed;
      bool is_written = false;
      for (int64_t i = sync; i < state.after; ++i) {
        const Change& later = history.value().change(i);
        for (const NameChange& name : later.names) {
          if (name.directory == change.inode) changed.insert(name.name);
        }
        is_written =
            is_written || (later.inode == change.inode && (later.kind == OperationKind::kWrite ||
                                                           later.kind == OperationKind::kTruncate));
      }
      if (change.kind == OperationKind::kSyncFile && !is_written) {
        RC_ASSERT(state.disk.Content(change.inode) == then.Content(change.inode));
      }
      if (change.kind != OperationKind::kSyncDirectory) continue;
      std::map<std::string, Inode> expected = then.Names(change.inode);
      std::map<std::string, Inode> seen = state.disk.Names(change.inode);
      for (const std::string& name : changed) {
        expected.erase(name);
        seen.erase(name);
      }
      RC_ASSERT(seen == expected);
    }
  }
}

RC_GTEST_PROP(StatesProperty, OnceAllIsSyncedThereIsOneState, ()) {
  Operations operations = AnyOperations(10);
  Disk last = WithTwoFiles();
  for (const FileOperation& operation : operations) RC_ASSERT(last.Apply(operation).ok());
  Append(operations, SyncsOfAll(last));
  for (const CrashModel model : {CrashModel::kKill, CrashModel::kExt4Ordered, CrashModel::kPosix}) {
    int64_t final_states = 0;
    for (const CrashState& state : StatesOf(operations, model, 60)) {
      if (state.after < static_cast<int64_t>(operations.size())) continue;
      ++final_states;
      RC_ASSERT(state.disk == last);
    }
    RC_ASSERT(final_states == 1);
  }
}

/// ext4 keeps what POSIX promises: where all combinations are made, each of its states is one of
/// theirs. So is each that a kill leaves, since a file system may lose nothing; what was under way
/// may then be what was done and is torn.
RC_GTEST_PROP(StatesProperty, EveryStateIsOneOfPosix, ()) {
  const Operations operations = AnyOperations(5);
  const int64_t count = static_cast<int64_t>(operations.size());
  const std::vector<CrashState> posix = StatesOf(operations, CrashModel::kPosix, 1000000);
  for (const CrashModel model : {CrashModel::kKill, CrashModel::kExt4Ordered}) {
    for (const CrashState& state : StatesOf(operations, model, 1000000)) {
      if (std::any_of(posix.begin(), posix.end(), [&](const CrashState& other) {
            return (state.in_flight || (other.after == count) == (state.after == count)) &&
                   other.disk == state.disk;
          })) {
        continue;
      }
      std::string text;
      for (const FileOperation& operation : operations) text += Describe(operation) + "\n";
      RC_FAIL(text + ToString(model) + " " + state.what + "\n" + state.disk.Text());
    }
  }
}

}  // namespace
}  // namespace shardproof::crash
