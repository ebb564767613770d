// What lies in the directory of a checkpoint and is no part of it.
#pragma once

#include <string>
#include <vector>

#include "verify/formats/stored.h"

namespace shardproof::formats {

struct Beside {
  std::vector<std::string> files;    ///< with names of a checkpoint's: optimizer.pt
  std::vector<std::string> folders;  ///< that have such files: original, global_step100
  std::vector<std::string> others;   ///< that are checkpoints of their own: steps of a run, links
};

/// By their names alone, each list sorted. \param read  the checkpoint's own files.
Beside BesideOf(const std::string& path, const std::vector<StoredFile>& read);

}  // namespace shardproof::formats
