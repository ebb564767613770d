#include "verify/crash_states/disk.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "verify/crash_states/link_target.h"

namespace shardproof::crash {
namespace {

constexpr int64_t kShownBytesMax = 32;

/// Nothing if there is a byte that is neither printable nor zero.
std::optional<std::string> Printed(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    if (byte != 0 && (byte < ' ' || byte > '~')) return std::nullopt;
    text += byte == 0 ? std::string("\\0") : std::string(1, byte);
  }
  return text;
}

}  // namespace

Disk::Disk() { Add(Kind::kDirectory); }

Inode Disk::Add(Kind kind) {
  nodes_.push_back(std::make_shared<Node>());
  nodes_.back()->kind = kind;
  return inode_count() - 1;
}

Disk::Node& Disk::ToChange(Inode inode) {
  std::shared_ptr<Node>& node = nodes_[inode];
  if (node.use_count() > 1) node = std::make_shared<Node>(*node);
  return *node;
}

void Disk::AddInode(const Change& change) {
  const Kind kind = change.kind == OperationKind::kMakeDirectory ? Kind::kDirectory
                    : change.kind == OperationKind::kSymlink     ? Kind::kLink
                                                                 : Kind::kFile;
  while (inode_count() <= change.inode) Add(kind);
  if (kind == Kind::kLink) ToChange(change.inode).target = *change.bytes;
  if (change.size_after > 0) ToChange(change.inode).content.Resize(change.size_after);
}

void Disk::SetName(const NameChange& change) {
  Node& directory = ToChange(change.directory);
  if (change.after == kNoInode)
    directory.names.erase(change.name);
  else
    directory.names[change.name] = change.after;
}

void Disk::SetContent(Inode file, FileContent content) {
  nodes_[file] = std::make_shared<Node>();
  nodes_[file]->content = std::move(content);
}

void Disk::Apply(const Change& change) {
  if (MakesInode(change.kind)) {
    AddInode(change);
  } else if (change.kind == OperationKind::kWrite) {
    ToChange(change.inode)
        .content.Write(change.offset, change.bytes, 0, static_cast<int64_t>(change.bytes->size()));
  } else if (change.kind == OperationKind::kTruncate) {
    ToChange(change.inode).content.Resize(change.size_after);
  }
  for (const NameChange& name : change.names) SetName(name);
}

Status Disk::Apply(const FileOperation& operation) {
  SP_ASSIGN(const Change change, Resolve(operation));
  Apply(change);
  return Ok();
}

std::vector<bool> Disk::Linked() const {
  std::vector<bool> linked(nodes_.size(), false);
  std::vector<Inode> left = {kRootInode};
  linked[kRootInode] = true;
  while (!left.empty()) {
    const Inode inode = left.back();
    left.pop_back();
    for (const auto& [name, child] : nodes_[inode]->names) {
      if (linked[child]) continue;
      linked[child] = true;
      left.push_back(child);
    }
  }
  return linked;
}

bool Disk::IsBelow(Inode inode, Inode directory) const {
  if (inode == directory) return true;
  for (const auto& [name, child] : nodes_[directory]->names) {
    if (IsBelow(inode, child)) return true;
  }
  return false;
}

bool Disk::HasLoop() const {
  // Depth first; a directory that is met again while what is below it is being looked at, is below
  // itself.
  enum class Mark { kNew, kOpen, kDone };
  std::vector<Mark> marks(nodes_.size(), Mark::kNew);
  const std::function<bool(Inode)> loops = [&](Inode inode) {
    if (marks[inode] != Mark::kNew) return marks[inode] == Mark::kOpen;
    marks[inode] = Mark::kOpen;
    for (const auto& [name, child] : nodes_[inode]->names) {
      if (loops(child)) return true;
    }
    marks[inode] = Mark::kDone;
    return false;
  };
  return loops(kRootInode);
}

uint64_t Disk::HashOf(Inode inode) const {
  const Node& node = *nodes_[inode];
  if (node.kind == Kind::kLink) return ~std::hash<std::string>()(node.target);
  if (node.kind == Kind::kFile) return node.content.Hash();
  uint64_t hash = 0x452821e638d01377u;
  for (const auto& [name, child] : node.names) {
    for (const uint64_t part : {std::hash<std::string>()(name), HashOf(child)}) {
      hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
      hash ^= hash >> 32;
    }
  }
  return hash;
}

uint64_t Disk::Hash() const { return HashOf(kRootInode); }

bool Disk::Same(Inode mine, const Disk& other, Inode theirs) const {
  const Node& a = *nodes_[mine];
  const Node& b = *other.nodes_[theirs];
  if (a.kind != b.kind || a.target != b.target) return false;
  if (a.kind == Kind::kFile) return &a == &b || a.content == b.content;
  return std::equal(a.names.begin(), a.names.end(), b.names.begin(), b.names.end(),
                    [&](const auto& left, const auto& right) {
                      return left.first == right.first && Same(left.second, other, right.second);
                    });
}

bool Disk::operator==(const Disk& other) const { return Same(kRootInode, other, kRootInode); }

void Disk::AppendLines(Inode inode, const std::string& prefix, std::vector<Line>& lines) const {
  for (const auto& [name, child] : nodes_[inode]->names) {
    const std::string path = prefix + name;
    if (IsDirectory(child)) {
      lines.push_back({path + "/", path + "/"});
      AppendLines(child, path + "/", lines);
      continue;
    }
    if (IsLink(child)) {
      lines.push_back({path, fmt::format("{} -> {}", path, TargetText(Target(child)))});
      continue;
    }
    const FileContent& content = nodes_[child]->content;
    std::optional<std::string> bytes;
    if (content.size() <= kShownBytesMax) bytes = Printed(content.Text());
    lines.push_back({path, bytes ? fmt::format("{}: {}", path, *bytes)
                                 : fmt::format("{}: {} bytes, hash {:016x}", path, content.size(),
                                               content.Hash())});
  }
}

std::vector<Disk::Line> Disk::Lines() const {
  std::vector<Line> lines;
  AppendLines(kRootInode, "", lines);
  return lines;
}

std::string Disk::Text() const {
  std::string text;
  for (const Line& line : Lines()) text += line.text + "\n";
  return text;
}

}  // namespace shardproof::crash
