// Operations, disks and their states for tests, in short.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "verify/crash_states/disk.h"
#include "verify/crash_states/operation.h"
#include "verify/crash_states/states.h"

namespace shardproof::crash {

inline FileOperation Create(std::string path, int64_t size = 0) {
  return {.kind = OperationKind::kCreate, .path = std::move(path), .size = size};
}
inline FileOperation Write(std::string path, int64_t offset, std::string bytes) {
  return {.kind = OperationKind::kWrite,
          .path = std::move(path),
          .offset = offset,
          .bytes = std::move(bytes)};
}
inline FileOperation Truncate(std::string path, int64_t size) {
  return {.kind = OperationKind::kTruncate, .path = std::move(path), .size = size};
}
inline FileOperation SyncFile(std::string path) {
  return {.kind = OperationKind::kSyncFile, .path = std::move(path)};
}
inline FileOperation MakeDirectory(std::string path) {
  return {.kind = OperationKind::kMakeDirectory, .path = std::move(path)};
}
inline FileOperation SyncDirectory(std::string path) {
  return {.kind = OperationKind::kSyncDirectory, .path = std::move(path)};
}
inline FileOperation Rename(std::string from, std::string to) {
  return {.kind = OperationKind::kRename, .path = std::move(from), .other = std::move(to)};
}
inline FileOperation Exchange(std::string a, std::string b) {
  return {.kind = OperationKind::kExchange, .path = std::move(a), .other = std::move(b)};
}
inline FileOperation Unlink(std::string path) {
  return {.kind = OperationKind::kUnlink, .path = std::move(path)};
}
inline FileOperation RemoveDirectory(std::string path) {
  return {.kind = OperationKind::kRemoveDirectory, .path = std::move(path)};
}

inline FileOperation Link(std::string path, std::string name) {
  return {.kind = OperationKind::kLink, .path = std::move(path), .other = std::move(name)};
}
inline FileOperation Symlink(std::string path, std::string target) {
  return {.kind = OperationKind::kSymlink, .path = std::move(path), .other = std::move(target)};
}

using Operations = std::vector<FileOperation>;

inline void Append(Operations& to, const Operations& more) {
  for (FileOperation operation : more) {
    operation.sequence = static_cast<int64_t>(to.size());
    to.push_back(std::move(operation));
  }
}

/// What is there once `operations` were done on an empty disk.
inline Disk DiskOf(const Operations& operations) {
  Disk disk;
  for (const FileOperation& operation : operations) {
    const Status done = disk.Apply(operation);
    EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().message);
  }
  return disk;
}

/// The texts of the distinct states under `model`; with `after` those of that crash point alone,
/// which counts states that the same operations left earlier too if it is the last.
inline std::set<std::string> Texts(CrashModel model, const Disk& before,
                                   const Operations& operations, StateOptions options = {},
                                   int64_t after = -1) {
  options.models = {model};
  std::set<std::string> texts;
  const auto counts = VisitStates(before, operations, options, [&](const CrashState& state) {
    if (after < 0 || state.after == after) texts.insert(state.disk.Text());
    return Ok();
  });
  EXPECT_TRUE(counts.ok()) << (counts.ok() ? "" : counts.error().message);
  return texts;
}

/// Blocks of 4 bytes, so that a test can be read.
inline StateOptions SmallBlocks() {
  StateOptions options;
  options.block_bytes = 4;
  options.combinations_max = 100000;
  return options;
}

}  // namespace shardproof::crash
