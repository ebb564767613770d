// A file system that is asked before each of its calls whether it may be made.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "src/storage/file_system.h"
#include "verify/trace/file_op.h"

namespace shardproof {

/// One call that is about to be made.
struct FileCall {
  FileOp op = FileOp::kMap;
  std::string path;  ///< of a rename the old name
  std::string
      action;  ///< as the real file system's errors have it: "writing 96 bytes at offset 0 of a"
  uint64_t bytes = 0;   ///< of a write
  uint64_t offset = 0;  ///< likewise
  std::string_view data = {};
  OutputFile* file = nullptr;  ///< of a write or sync
};

/// Ok, and the call is made; or what it fails with.
using BeforeCall = std::function<Status(const FileCall&)>;

std::shared_ptr<FileSystem> AskBefore(std::shared_ptr<FileSystem> inner, BeforeCall before);

}  // namespace shardproof
