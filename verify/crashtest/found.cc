#include "verify/crashtest/found.h"

#include <algorithm>
#include <filesystem>

namespace shardproof::crashtest {
namespace {

using crash::Disk;
using crash::Inode;
using crash::kNoInode;
using crash::kRootInode;

std::string Joined(const std::string& directory, const std::string& name) {
  return directory.empty() ? name : directory + "/" + name;
}

bool IsSafetensors(const std::string& name) {
  return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
}

bool IsTorch(const std::string& name) {
  return name.ends_with(".pt") || name.ends_with(".pth") || name.ends_with(".bin") ||
         name.ends_with(".ckpt");
}

void Find(const Disk& disk, Inode inode, const std::string& path, const std::string& kind,
          std::vector<What>& found) {
  const auto& names = disk.Names(inode);
  if (names.contains(".metadata")) {
    if (kind.empty() || kind == "dcp") found.push_back({"dcp", path, {}});
    return;
  }
  What files{.kind = "", .path = path};
  bool has_torch = false;
  bool has_safetensors = false;
  for (const auto& [name, child] : names) {
    if (disk.IsDirectory(child)) {
      Find(disk, child, Joined(path, name), kind, found);
      continue;
    }
    if (name.starts_with(".")) continue;  // what is not done yet is often called so
    const bool is_safetensors = IsSafetensors(name) && (kind.empty() || kind == "safetensors");
    const bool is_torch = IsTorch(name) && (kind.empty() || kind == "torch");
    if (!is_safetensors && !is_torch) continue;
    has_safetensors = has_safetensors || is_safetensors;
    has_torch = has_torch || is_torch;
    files.files.push_back(name);
  }
  if (files.files.empty()) return;
  files.kind = has_torch && has_safetensors ? "files" : has_torch ? "torch" : "safetensors";
  found.push_back(std::move(files));
}

/// Everything below, files with their bytes.
std::string Contents(const Disk& disk, Inode inode) {
  if (inode == kNoInode) return "none";
  if (!disk.IsDirectory(inode)) return std::to_string(disk.Content(inode).Hash());
  std::string text;
  for (const auto& [name, child] : disk.Names(inode)) text += name + "/" + Contents(disk, child);
  return "{" + text + "}";
}

}  // namespace

std::vector<What> CheckpointsOf(const Disk& disk, const std::string& kind) {
  std::vector<What> found;
  Find(disk, kRootInode, "", kind, found);
  std::sort(found.begin(), found.end(),
            [](const What& a, const What& b) { return a.path < b.path; });
  return found;
}

std::vector<What> At(const std::vector<What>& found, const std::string& path) {
  const std::string normal = std::filesystem::path(path).lexically_normal().string();
  std::string wanted = normal == "." ? "" : normal;
  while (wanted.ends_with('/')) wanted.pop_back();
  std::vector<What> at;
  for (const What& what : found) {
    if (what.path == wanted) at.push_back(what);
    for (const std::string& file : what.files) {
      if (Joined(what.path, file) != wanted) continue;
      const std::string kind = IsTorch(file) ? "torch" : "safetensors";
      at.push_back({kind, what.path, {file}});
    }
  }
  return at;
}

bool Differs(const What& what, const Disk& a, const Disk& b) {
  if (what.kind == "dcp") {
    return Contents(a, a.Find(what.path)) != Contents(b, b.Find(what.path));
  }
  return std::any_of(what.files.begin(), what.files.end(), [&](const std::string& file) {
    const std::string path = Joined(what.path, file);
    return Contents(a, a.Find(path)) != Contents(b, b.Find(path));
  });
}

}  // namespace shardproof::crashtest
