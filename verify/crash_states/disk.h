// What a directory and all below it hold, in memory: names stand for inodes, files have bytes. An
// operation is first resolved, which says what it does to which inodes; crash states are made of
// such changes that are kept or lost one by one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/core/result.h"
#include "verify/crash_states/content.h"
#include "verify/crash_states/operation.h"

namespace shardproof::crash {

using Inode = int64_t;
constexpr Inode kNoInode = -1;
constexpr Inode kRootInode = 0;

/// A name of a directory that stands for something else from now on.
struct NameChange {
  Inode directory = kNoInode;
  std::string name;
  Inode before = kNoInode;  ///< kNoInode: there was no such name
  Inode after = kNoInode;   ///< kNoInode: there is none any more
};

/// What an operation does. Inodes are numbered from 0, in the order in which they came to be.
struct Change {
  OperationKind kind = OperationKind::kCreate;
  Inode inode = kNoInode;         ///< that is made, written, sized, synced, moved or removed
  Inode other = kNoInode;         ///< that is replaced by a rename, or exchanged with `inode`
  std::vector<NameChange> names;  ///< one; of a rename or exchange two; none of what moves no name
  int64_t offset = 0;             ///< bytes; of a write
  SharedBytes bytes;              ///< of a write; of a symlink its target
  int64_t size_before = 0;        ///< bytes of the file, of a create, write or truncate
  int64_t size_after = 0;         ///< likewise
};

/// A value; copies share what they have in common. Not for use by two threads at once.
class Disk {
 public:
  /// An empty directory.
  Disk();

  /// What `directory` holds now. The files' bytes come into memory, and holes as zeros.
  /// \error kBadInput if something cannot be read; kUnsupported if there is anything but regular
  ///   files, directories and symbolic links that stay below it or are absolute.
  static Result<Disk> Read(const std::string& directory);

  /// Makes `directory`, which must exist and be empty, hold the same. A file that two names stand
  /// for is written twice.
  /// \error kFailed naming the path and errno.
  Status WriteTo(const std::string& directory) const;

  /// What `operation` would do.
  /// \error kBadInput if a file system would refuse it, naming sequence number, operation, path,
  ///   what was expected and what is there.
  Result<Change> Resolve(const FileOperation& operation) const;
  /// What Resolve said, in full.
  void Apply(const Change& change);
  /// Both.
  /// \error as Resolve.
  Status Apply(const FileOperation& operation);

  // In parts, as crash states need them.

  /// Makes the inode of a create, mkdir or symlink, without a name.
  void AddInode(const Change& change);
  void SetName(const NameChange& change);
  void SetContent(Inode file, FileContent content);

  Inode inode_count() const { return static_cast<Inode>(nodes_.size()); }
  bool IsDirectory(Inode inode) const { return nodes_[inode]->kind == Kind::kDirectory; }
  bool IsLink(Inode inode) const { return nodes_[inode]->kind == Kind::kLink; }
  /// Of a symbolic link, as in link_target.h.
  const std::string& Target(Inode link) const { return nodes_[link]->target; }
  const std::map<std::string, Inode>& Names(Inode directory) const {
    return nodes_[directory]->names;
  }
  const FileContent& Content(Inode file) const { return nodes_[file]->content; }
  /// kNoInode where nothing has this path, in which no symbolic link is followed.
  Inode Find(const std::string& path) const;
  /// Whether `inode` is `directory` or somewhere below it.
  bool IsBelow(Inode inode, Inode directory) const;
  /// By inode: whether it is the root or has a name below it.
  std::vector<bool> Linked() const;
  /// Whether a directory is below itself, which no file system lets happen.
  bool HasLoop() const;

  /// Of all paths and bytes. Which inode has which number does not matter, nor do inodes without a
  /// name. Not to be asked of a disk with a loop.
  uint64_t Hash() const;
  bool operator==(const Disk& other) const;

  struct Line {
    std::string path;  ///< "a/" of a directory
    std::string text;  ///< with the path
    bool operator==(const Line&) const = default;
  };
  /// For people and tests: one line a path, sorted, "a/" for a directory, "b: hello" for a file of
  /// up to 32 printable bytes and zeros (as \0), "b: 4096 bytes, hash 0123456789abcdef" for others,
  /// "c -> b" for a symbolic link.
  std::vector<Line> Lines() const;
  /// The same, with a line break after each.
  std::string Text() const;

 private:
  enum class Kind { kFile, kDirectory, kLink };
  struct Node {
    Kind kind = Kind::kFile;
    std::map<std::string, Inode> names;  ///< of a directory
    FileContent content;                 ///< of a file
    std::string target;                  ///< of a symbolic link
  };
  /// Where a file that has more names than one was met first, by device and inode.
  using Met = std::map<std::pair<uint64_t, uint64_t>, Inode>;

  Inode Add(Kind kind);
  Node& ToChange(Inode inode);
  uint64_t HashOf(Inode inode) const;
  bool Same(Inode mine, const Disk& other, Inode theirs) const;
  Status ReadInto(Inode inode, const std::string& root, const std::string& place, Met& met);
  Status WriteFrom(Inode inode, const std::string& root, const std::string& place) const;
  void AppendLines(Inode inode, const std::string& prefix, std::vector<Line>& lines) const;

  std::vector<std::shared_ptr<Node>> nodes_;  ///< by inode; one that others share is never changed
};

}  // namespace shardproof::crash
