#include "verify/oracle/listing.h"

#include <fmt/format.h>

#include <filesystem>

#include "verify/oracle/quote.h"
#include "verify/oracle/tree.h"

namespace shardproof::oracle {
namespace {

namespace fs = std::filesystem;
using Visit = std::function<Next(const DirectoryEntry&)>;

/// The entries of one folder, then those of the folders that are to be gone into. \param failed
/// takes the first failure; what else there is is visited all the same.
Next WalkFolder(const fs::path& folder, const fs::path& top, int depth, const Visit& visit,
                Status& failed) {
  std::error_code error;
  fs::directory_iterator it(folder, error);
  for (const fs::directory_iterator end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    const std::string path = it->path().string();
    const DirectoryEntry entry{.path = path,
                               .name = it->path().lexically_relative(top).string(),
                               .depth = depth,
                               .is_directory = it->is_directory(ignored),
                               .is_file = it->is_regular_file(ignored),
                               .is_link = it->is_symlink(ignored)};
    const Next next = IsLeftOut(path) ? Next::kOver : visit(entry);
    if (next == Next::kEnd) return next;
    const bool goes_in = next == Next::kInto ? !entry.is_link : next == Next::kIntoLinkToo;
    if (goes_in && entry.is_directory &&
        WalkFolder(it->path(), top, depth + 1, visit, failed) == Next::kEnd)
      return Next::kEnd;
  }
  // ext4 has an empty one at its top, which is root's.
  const bool is_nothing = depth > 0 && folder.filename() == "lost+found";
  if (error && !is_nothing && failed.ok()) {
    failed = BadInput(
        fmt::format("{}: cannot be listed: {}", Printable(folder.string()), error.message()));
  }
  return Next::kOver;
}

/// The entries of one folder of a tree, then those of the folders that are to be gone into.
Next WalkTree(const Tree& tree, const std::string& directory, const std::string& top,
              const std::string& below, int depth, const Visit& visit) {
  std::string last;
  for (auto it = tree.lower_bound(top); it != tree.end() && it->first.starts_with(top); ++it) {
    const size_t slash = it->first.find('/', top.size());
    const std::string part = it->first.substr(top.size(), slash - top.size());
    if (part == last || IsLeftOut(part)) continue;
    last = part;
    const bool is_directory = slash != std::string::npos;
    const DirectoryEntry entry{.path = directory + "/" + below + part,
                               .name = below + part,
                               .depth = depth,
                               .is_directory = is_directory,
                               .is_file = !is_directory};
    const Next next = visit(entry);
    if (next == Next::kEnd) return next;
    if (next != Next::kOver && is_directory &&
        WalkTree(tree, directory, top + part + "/", below + part + "/", depth + 1, visit) ==
            Next::kEnd)
      return Next::kEnd;
  }
  return Next::kOver;
}

}  // namespace

bool IsLeftOut(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  return name.starts_with("._") || name == "__MACOSX";
}

bool IsDirectory(const std::string& path) {
  if (const TreePlace place = FindInTrees(path); place.tree != nullptr) return place.IsDirectory();
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool IsFile(const std::string& path) {
  if (const TreePlace place = FindInTrees(path); place.tree != nullptr)
    return place.File() != nullptr;
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

bool Exists(const std::string& path) {
  if (IsMounted(path)) return IsFile(path) || IsDirectory(path);
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool IsThere(const std::string& path) {
  if (IsMounted(path)) return Exists(path);
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

uint64_t FileBytes(const std::string& path) {
  if (const TreePlace place = FindInTrees(path); place.tree != nullptr)
    return place.File() != nullptr ? place.File()->bytes : 0;
  std::error_code error;
  const uint64_t bytes = fs::file_size(path, error);
  return error ? 0 : bytes;
}

Status Walk(const std::string& directory, const Visit& visit) {
  const TreePlace place = FindInTrees(directory);
  if (place.tree == nullptr) {
    Status failed = Ok();
    (void)WalkFolder(directory, directory, 0, visit, failed);
    return failed;
  }
  WalkTree(*place.tree, directory, place.name.empty() ? "" : place.name + "/", "", 0, visit);
  return Ok();
}

Status List(const std::string& directory, const std::function<void(const DirectoryEntry&)>& visit) {
  return Walk(directory, [&](const DirectoryEntry& entry) {
    visit(entry);
    return Next::kOver;
  });
}

}  // namespace shardproof::oracle
