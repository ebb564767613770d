// A directory for scratch files that goes with this process, however that ends.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "src/core/result.h"

namespace shardproof {

/// Removed when this object is destroyed; and where that never happens, as when a signal ends the
/// process, by a process that waits for it. Only the process that made it destroys it, no fork of
/// it.
class ScratchDirectory {
 public:
  /// A new one in `parent`; empty: in the directory for such files, TMPDIR or /tmp. \error
  /// kBadInput if it cannot be made.
  static Result<std::unique_ptr<ScratchDirectory>> Make(const std::string& parent = "");
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  ScratchDirectory() = default;
  void StartGuard();

  std::string path_;
  pid_t guard_ = -1;
  int alive_ = -1;  ///< the end of a pipe that closes with the last process which writes here
};

}  // namespace shardproof
