#include "verify/oracle/tree.h"

#include <filesystem>

namespace shardproof::oracle {
namespace {

std::map<std::string, Tree>& Mounts() {
  static std::map<std::string, Tree> mounts;
  return mounts;
}

/// Callers join paths with a slash of their own.
std::string WithoutSlashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

}  // namespace

void Mount(const std::string& path, Tree tree) { Mounts()[WithoutSlashes(path)] = std::move(tree); }
void Unmount(const std::string& path) { Mounts().erase(WithoutSlashes(path)); }

const TreeFile* TreePlace::File() const {
  const auto found = tree->find(name);
  return found == tree->end() ? nullptr : &found->second;
}

bool TreePlace::IsDirectory() const {
  if (name.empty()) return !tree->contains("");
  const auto below = tree->lower_bound(name + "/");
  return below != tree->end() && below->first.starts_with(name + "/");
}

TreePlace FindInTrees(const std::string& path) {
  for (const auto& [root, tree] : Mounts()) {
    if (!path.starts_with(root)) continue;
    const std::string rest = path.substr(root.size());
    if (!rest.empty() && rest.front() != '/') continue;
    std::string name = std::filesystem::path(rest).relative_path().lexically_normal().string();
    if (name.ends_with('/')) name.pop_back();
    return {&tree, name == "." ? "" : name};
  }
  return {};
}

bool IsMounted(const std::string& path) { return FindInTrees(path).tree != nullptr; }

}  // namespace shardproof::oracle
