// What a job that is struck may change: the scratch directory that it saves to, and nothing else.
#pragma once

#include <memory>
#include <string>

#include "src/storage/file_system.h"

namespace shardproof {

/// Refuses to make, change, rename or remove anything but `save_to`, what is below it, and what
/// lies beside it with its name as a prefix (drafts). Reads and syncs go anywhere.
std::shared_ptr<FileSystem> ConfineTo(std::shared_ptr<FileSystem> inner,
                                      const std::string& save_to);

}  // namespace shardproof
