// What an operation does to which inodes, and which operations are impossible.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "verify/crash_states/disk.h"

namespace shardproof::crash {
namespace {

/// Where a path leads: the directory that it ends in, and the last name there.
struct Place {
  Inode directory = kNoInode;
  std::string name;        ///< empty: the root itself
  Inode inode = kNoInode;  ///< kNoInode: nothing has this name
  std::string missing;     ///< what keeps the path from leading anywhere; empty if it does
};

Place Locate(const Disk& disk, const std::string& path) {
  Place place;
  place.inode = kRootInode;
  for (size_t at = 0; at < path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string part = path.substr(at, end - at);
    at = end + 1;
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      place.missing = "a path without '..'";
      return place;
    }
    if (place.inode == kNoInode || !disk.IsDirectory(place.inode)) {
      place.missing = fmt::format("'{}' to be a directory", place.name);
      return place;
    }
    place.directory = place.inode;
    place.name = part;
    const auto found = disk.Names(place.directory).find(part);
    place.inode = found == disk.Names(place.directory).end() ? kNoInode : found->second;
  }
  return place;
}

const char* WhatIs(const Disk& disk, Inode inode) {
  if (inode == kNoInode) return "nothing";
  if (disk.IsLink(inode)) return "a symbolic link";
  if (!disk.IsDirectory(inode)) return "a file";
  return disk.Names(inode).empty() ? "an empty directory" : "a directory that is not empty";
}

/// What is wrong with an operation's path or other path, which leads to `place`.
Error WrongPlace(const Disk& disk, const FileOperation& operation, const std::string& path,
                 const Place& place, const std::string& expected) {
  return BadInput(fmt::format("operation {} of rank {}, {}: '{}': expected {}, found {}",
                              operation.sequence, operation.rank, Describe(operation), path,
                              expected,
                              place.missing.empty() ? WhatIs(disk, place.inode) : "another path"));
}

/// Whether it is about a second path, too.
bool NamesTwo(OperationKind kind) {
  return kind == OperationKind::kRename || kind == OperationKind::kExchange ||
         kind == OperationKind::kLink;
}

/// Of every kind: that the path leads somewhere, and that a file can have the offset and size.
Status CheckPlace(const Disk& disk, const FileOperation& operation, const Place& at) {
  using enum OperationKind;
  const OperationKind kind = operation.kind;
  const auto wrong = [&](const std::string& expected) {
    return WrongPlace(disk, operation, operation.path, at, expected);
  };
  if (!at.missing.empty()) return wrong(at.missing);
  const bool moves_name =
      kind != kWrite && kind != kTruncate && kind != kSyncFile && kind != kSyncDirectory;
  if (moves_name && at.name.empty()) return wrong("a name below the directory that is looked at");
  if (operation.offset < 0 || operation.size < 0 ||
      operation.offset > INT64_MAX - static_cast<int64_t>(operation.bytes.size())) {
    return wrong("offset and size that a file can have");
  }
  return Ok();
}

/// The rest of `change`, of an operation on the one path that leads to `at`.
Result<Change> ResolveOne(const Disk& disk, const FileOperation& operation, const Place& at,
                          Change change) {
  using enum OperationKind;
  const OperationKind kind = operation.kind;
  const auto wrong = [&](const std::string& expected) {
    return WrongPlace(disk, operation, operation.path, at, expected);
  };
  const bool is_there = at.inode != kNoInode;
  const bool is_directory = is_there && disk.IsDirectory(at.inode);
  switch (kind) {
    case kCreate:
    case kMakeDirectory:
    case kSymlink:
      if (is_there) return wrong("nothing yet");
      if (kind == kSymlink) change.bytes = std::make_shared<const std::string>(operation.other);
      change.inode = disk.inode_count();
      change.size_after = operation.size;
      change.names = {{at.directory, at.name, kNoInode, change.inode}};
      return change;
    case kWrite:
    case kTruncate:
    case kSyncFile:
      if (!is_there || is_directory || disk.IsLink(at.inode)) return wrong("a file");
      change.size_before = disk.Content(at.inode).size();
      change.size_after = change.size_before;
      if (kind == kTruncate) change.size_after = operation.size;
      if (kind != kWrite) return change;
      change.offset = operation.offset;
      change.bytes = std::make_shared<const std::string>(operation.bytes);
      if (!operation.bytes.empty()) {
        change.size_after = std::max(
            change.size_before, operation.offset + static_cast<int64_t>(operation.bytes.size()));
      }
      return change;
    case kSyncDirectory:
      if (!is_directory) return wrong("a directory");
      return change;
    case kUnlink:
      if (!is_there || is_directory) return wrong("a file or link");
      change.names = {{at.directory, at.name, at.inode, kNoInode}};
      return change;
    case kRemoveDirectory:
      if (!is_directory || !disk.Names(at.inode).empty()) return wrong("an empty directory");
      change.names = {{at.directory, at.name, at.inode, kNoInode}};
      return change;
    case kRename:
    case kExchange:
    case kLink:
      break;  // of ResolveTwo
  }
  return change;
}

/// Likewise, of one that gives what is at `at` a name at its other path.
Result<Change> ResolveTwo(const Disk& disk, const FileOperation& operation, const Place& at,
                          Change change) {
  using enum OperationKind;
  const OperationKind kind = operation.kind;
  const auto wrong = [&](const std::string& expected) {
    return WrongPlace(disk, operation, operation.path, at, expected);
  };
  if (at.inode == kNoInode) return wrong("a file or directory");
  const bool is_directory = disk.IsDirectory(at.inode);
  const Place to = Locate(disk, operation.other);
  const auto wrong_target = [&](const std::string& expected) {
    return WrongPlace(disk, operation, operation.other, to, expected);
  };
  if (!to.missing.empty()) return wrong_target(to.missing);
  if (to.name.empty()) return wrong_target("a name below the directory that is looked at");
  if (kind == kLink) {
    if (is_directory) return wrong("a file");
    if (to.inode != kNoInode) return wrong_target("nothing yet");
    change.names = {{to.directory, to.name, kNoInode, at.inode}};
    return change;
  }
  if (to.inode == at.inode) return change;  // rename(2): nothing is done
  if (disk.IsBelow(to.directory, at.inode) ||
      (kind == kExchange && to.inode != kNoInode && disk.IsBelow(at.directory, to.inode))) {
    return wrong_target("a path that is not below the other");
  }
  if (kind == kExchange && to.inode == kNoInode) return wrong_target("a file or directory");
  if (kind == kRename && to.inode != kNoInode) {
    if (is_directory && !(disk.IsDirectory(to.inode) && disk.Names(to.inode).empty())) {
      return wrong_target("nothing, or an empty directory");
    }
    if (!is_directory && disk.IsDirectory(to.inode)) return wrong_target("nothing, or a file");
  }
  change.other = to.inode;
  change.names = {{at.directory, at.name, at.inode, kind == kExchange ? to.inode : kNoInode},
                  {to.directory, to.name, to.inode, at.inode}};
  return change;
}

}  // namespace

Inode Disk::Find(const std::string& path) const {
  const Place place = Locate(*this, path);
  return place.missing.empty() ? place.inode : kNoInode;
}

Result<Change> Disk::Resolve(const FileOperation& operation) const {
  const Place at = Locate(*this, operation.path);
  SP_TRY(CheckPlace(*this, operation, at));
  Change change;
  change.kind = operation.kind;
  change.inode = at.inode;
  if (NamesTwo(operation.kind)) return ResolveTwo(*this, operation, at, std::move(change));
  return ResolveOne(*this, operation, at, std::move(change));
}

}  // namespace shardproof::crash
