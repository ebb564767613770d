// Where a checkpoint lies.
#pragma once

#include <string>

namespace shardproof {

/// What the name of something being saved ends with, until it is whole.
inline constexpr const char* kDraftSuffix = ".saving";

inline std::string WithoutSlashAtEnd(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

/// The directory that a path without a slash at its end is in.
inline std::string ParentOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

}  // namespace shardproof
