#include "verify/crashtest/found.h"

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "verify/crash_states/link_target.h"

namespace shardproof::crashtest {
namespace {

using crash::Disk;
using crash::Inode;
using crash::Joined;
using crash::kNoInode;
using crash::kRootInode;

std::string Folder(const std::string& path) {
  return std::filesystem::path(path).parent_path().string();
}

bool IsSafetensors(const std::string& name) {
  return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
}

bool IsTorch(const std::string& name) {
  return name.ends_with(".pt") || name.ends_with(".pth") || name.ends_with(".bin") ||
         name.ends_with(".ckpt");
}

/// Where a path leads, and what is there.
struct Behind {
  std::string path;  ///< without links
  Inode inode = kNoInode;
};

/// With the links on the way followed, and one that it ends in.
Behind Follow(const Disk& disk, const std::string& path) {
  constexpr int kLinksMax = 8;
  std::string left = path;
  std::string done;
  for (int links = 0; links <= kLinksMax;) {
    const size_t slash = left.find('/');
    const std::string here = Joined(done, left.substr(0, slash));
    const std::string rest = slash == std::string::npos ? "" : left.substr(slash + 1);
    const Inode inode = disk.Find(here);
    if (inode == kNoInode) break;
    if (disk.IsLink(inode)) {
      const std::string target = crash::PathOfTarget(done, disk.Target(inode));
      if (target.starts_with('/')) break;  // elsewhere
      left = rest.empty() ? target : target.empty() ? rest : target + "/" + rest;
      done.clear();
      ++links;
      if (left.empty()) return {"", kRootInode};
      continue;
    }
    if (rest.empty()) return {here, inode};
    done = here;
    left = rest;
  }
  return {path, kNoInode};
}

/// Of the name, or of what it leads to.
std::string KindOf(const std::string& name, const std::string& behind) {
  for (const std::string& known : {name, behind}) {
    if (IsSafetensors(known)) return "safetensors";
    if (IsTorch(known)) return "torch";
  }
  return "";
}

class Finder {
 public:
  Finder(const Disk& disk, const std::string& kind) : disk_(disk), kind_(kind) {}

  /// \param is_link  whether a link is on the way there
  void Find(Inode inode, const std::string& path, bool is_link) {
    const auto& names = disk_.Names(inode);
    if (names.contains(".metadata")) {
      if (IsWanted("dcp")) found.push_back({"dcp", path, {}});
      return;
    }
    const std::string real = is_link ? Follow(disk_, path).path : path;
    What files{.kind = "", .path = path};
    for (const auto& [name, child] : names) {
      const Behind behind = disk_.IsLink(child) ? Follow(disk_, Joined(path, name))
                                                : Behind{Joined(path, name), child};
      if (behind.inode == kNoInode) continue;
      if (disk_.IsDirectory(behind.inode)) {
        // Links that are behind a link may lead back.
        if (is_link && disk_.IsLink(child)) continue;
        Find(behind.inode, Joined(path, name), is_link || disk_.IsLink(child));
        continue;
      }
      if (name.starts_with(".")) continue;  // what is not done yet is often called so
      const std::string kind = KindOf(name, behind.path);
      if (kind.empty() || !IsWanted(kind)) continue;
      if (disk_.IsLink(child) && Folder(behind.path) == real) {
        found.push_back({kind, path, {name}});
        continue;
      }
      files.kind = files.kind.empty() || files.kind == kind ? kind : "files";
      files.files.push_back(name);
    }
    if (!files.files.empty()) found.push_back(std::move(files));
  }

  std::vector<What> found;

 private:
  bool IsWanted(const std::string& kind) const { return kind_.empty() || kind_ == kind; }

  const Disk& disk_;
  const std::string& kind_;
};

/// Everything below, files with their bytes.
std::string Contents(const Disk& disk, Inode inode) {
  if (inode == kNoInode) return "none";
  if (disk.IsLink(inode)) return disk.Target(inode);
  if (!disk.IsDirectory(inode)) return std::to_string(disk.Content(inode).Hash());
  std::string text;
  for (const auto& [name, child] : disk.Names(inode)) text += name + "/" + Contents(disk, child);
  return "{" + text + "}";
}

std::string ContentsAt(const Disk& disk, const std::string& path) {
  return Contents(disk, Follow(disk, path).inode);
}

std::vector<std::string> Paths(const What& what) {
  if (what.files.empty()) return {what.path};
  std::vector<std::string> paths;
  for (const std::string& file : what.files) paths.push_back(Joined(what.path, file));
  return paths;
}

/// The first link on the way to it; nothing if there is none.
std::optional<std::string> LinkOf(const What& what, const Disk& disk) {
  const std::string way = what.files.size() > 1 ? what.path : what.FirstPath();
  for (size_t end = 0; end < way.size();) {
    end = std::min(way.find('/', end + 1), way.size());
    const std::string path = way.substr(0, end);
    const Inode inode = disk.Find(path);
    if (inode != kNoInode && disk.IsLink(inode)) return path;
  }
  return std::nullopt;
}

/// Whether a path is its own, or that of one of its files.
bool Holds(const What& what, const std::string& path) {
  const auto paths = Paths(what);
  return what.path == path || std::find(paths.begin(), paths.end(), path) != paths.end();
}

/// What a small file says, as a path below the root; empty if it says none.
std::string PathIn(const Disk& disk, const std::string& file) {
  constexpr int64_t kTextMax = 4096;
  const Inode inode = disk.Find(file);
  if (inode == kNoInode || disk.IsDirectory(inode) || disk.IsLink(inode)) return "";
  if (disk.Content(inode).size() > kTextMax) return "";
  std::string text = disk.Content(inode).Text();
  const size_t end = text.find_last_not_of(" \t\r\n");
  text.resize(end == std::string::npos ? 0 : end + 1);
  text.erase(0, text.find_first_not_of(" \t\r\n"));
  if (text.empty() || text.starts_with('/')) return "";
  return crash::PathOfTarget(Folder(file), text);
}

void AddFiles(const Disk& disk, Inode inode, const std::string& path,
              std::vector<std::string>& files) {
  for (const auto& [name, child] : disk.Names(inode)) {
    if (disk.IsDirectory(child)) {
      AddFiles(disk, child, Joined(path, name), files);
    } else {
      files.push_back(Joined(path, name));
    }
  }
}

}  // namespace

std::vector<What> CheckpointsOf(const Disk& disk, const std::string& kind) {
  Finder finder(disk, kind);
  finder.Find(kRootInode, "", false);
  std::sort(finder.found.begin(), finder.found.end(), [](const What& a, const What& b) {
    return std::tie(a.path, a.files) < std::tie(b.path, b.files);
  });
  return finder.found;
}

std::vector<What> At(const std::vector<What>& found, const std::string& path) {
  const std::string wanted = crash::PathOfTarget("", path);
  std::vector<What> at;
  for (const What& what : found) {
    if (what.path == wanted) at.push_back(what);
    for (const std::string& file : what.files) {
      if (Joined(what.path, file) != wanted) continue;
      at.push_back({what.kind == "files" ? KindOf(file, "") : what.kind, what.path, {file}});
    }
  }
  return at;
}

bool IsByLink(const What& what, const Disk& disk) { return LinkOf(what, disk).has_value(); }

std::vector<What> Entrances(const std::vector<What>& changed, const Disk& before,
                            const Disk& after) {
  std::vector<std::string> reached;  // by links that have moved
  std::vector<What> left;
  for (const What& what : changed) {
    const auto link = LinkOf(what, after);
    const bool has_moved =
        link && Contents(before, before.Find(*link)) != after.Target(after.Find(*link));
    if (link && !has_moved) continue;
    if (link) {
      for (const std::string& path : {what.path, what.FirstPath()}) {
        reached.push_back(Follow(after, path).path);
      }
    }
    left.push_back(what);
  }
  std::erase_if(left, [&](const What& what) {
    return !LinkOf(what, after) &&
           std::any_of(reached.begin(), reached.end(),
                       [&](const std::string& path) { return Holds(what, path); });
  });
  return left;
}

std::optional<What> NamedBy(const std::string& named_by, const std::vector<What>& found,
                            const Disk& disk) {
  const std::string path = PathIn(disk, named_by);
  if (path.empty()) return std::nullopt;
  for (const What& what : At(found, path)) {
    const bool is_directory = what.path == path;
    return What{what.kind, "", is_directory ? what.files : std::vector<std::string>(), named_by};
  }
  return std::nullopt;
}

std::optional<What> ByName(const What& what, const Disk& before, const Disk& after) {
  std::vector<std::string> files;
  AddFiles(after, kRootInode, "", files);
  for (const std::string& file : files) {
    if (Holds(what, file) || file.starts_with(what.path + "/")) continue;
    if (Contents(before, before.Find(file)) == Contents(after, after.Find(file))) continue;
    if (auto named = NamedBy(file, {what}, after)) return named;
  }
  return std::nullopt;
}

bool Differs(const What& what, const Disk& a, const Disk& b) {
  const auto paths = Paths(what);
  return std::any_of(paths.begin(), paths.end(), [&](const std::string& path) {
    return ContentsAt(a, path) != ContentsAt(b, path);
  });
}

}  // namespace shardproof::crashtest
