// A file that a stopped thread has open. Internal to the folder.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "src/core/result.h"

namespace shardproof::crash {

struct OpenFile {
  std::string path;  ///< as it is called now
  bool has_name = true;
  bool is_directory = false;
  bool is_regular = false;
  bool can_write = false;
  bool appends = false;
  bool syncs = false;    ///< every write, O_SYNC or O_DSYNC
  int64_t position = 0;  ///< bytes
  int64_t size = 0;      ///< bytes
  uint64_t device = 0;
  uint64_t inode = 0;

  std::pair<uint64_t, uint64_t> id() const { return {device, inode}; }
};

/// Nothing if the descriptor is not open, or stands for no file.
std::optional<OpenFile> LookAt(pid_t thread, int descriptor);

/// `count` bytes at `offset`, as the file holds them now. \error kFailed if they cannot be read.
Result<std::string> ReadBack(pid_t thread, int descriptor, int64_t offset, int64_t count);

}  // namespace shardproof::crash
