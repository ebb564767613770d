// What lies where: in the file system, or in what is mounted (tree.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "src/core/result.h"

namespace shardproof::oracle {

bool IsDirectory(const std::string& path);
bool IsFile(const std::string& path);         ///< a regular one, or a link to such
bool Exists(const std::string& path);         ///< a link to nothing does not
bool IsThere(const std::string& path);        ///< a link to nothing is
uint64_t FileBytes(const std::string& path);  ///< 0 of what is no file

/// What macOS keeps beside a file: "._" before its name, or below __MACOSX.
bool IsLeftOut(const std::string& path);

struct DirectoryEntry {
  std::string path;
  std::string name;           ///< below the directory that is listed
  int depth = 0;              ///< of folders that it lies in
  bool is_directory = false;  ///< or a link to one
  bool is_file = false;       ///< or a link to one
  bool is_link = false;
};

/// What Walk is to do next.
enum class Next { kInto, kIntoLinkToo, kOver, kEnd };

/// Calls `visit` with each entry below a directory; folders are gone into if it says so, and links
/// to folders if it says that. What macOS keeps beside a file, "._" before its name, is left out.
/// \error kBadInput, at the end, if a directory cannot be listed; not of a lost+found in it.
Status Walk(const std::string& directory, const std::function<Next(const DirectoryEntry&)>& visit);

/// The same of the entries of the directory itself.
Status List(const std::string& directory, const std::function<void(const DirectoryEntry&)>& visit);

}  // namespace shardproof::oracle
