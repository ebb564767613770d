// Small files, written at once.
#pragma once

#include <string>

#include "src/seam/file_system.h"

namespace shardproof {

/// The most bytes that a save holds in memory before it writes them.
inline constexpr uint64_t kStagedBytesMax = 4u << 20;

/// Makes a new file of that content; its bytes are durable on return, its name is not yet.
/// \error kFailed if it exists or cannot be written.
inline Status WriteWhole(FileSystem& files, const std::string& path, const std::string& text) {
  SP_TRY(files.Create(path, text.size()));
  SP_ASSIGN(const auto file, files.OpenForWrite(path));
  SP_TRY(file->WriteAt(0, text));
  return file->Sync();
}

}  // namespace shardproof
