// Memory cgroups: limits on what a process may take, and what the kernel has done about them.
// Version 1 and version 2 of the interface, whichever the machine has for memory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "src/core/result.h"

namespace shardproof {

/// Why no memory cgroup can be made here, in a line, or empty. Tries it, once.
std::string WhyNoMemoryCgroup();

/// Moves this process into a new memory cgroup of its own, below a directory that is its parent
/// process's (RemoveCgroups), with room for `limit_bytes` of what it touches from now on: what it
/// holds already stays charged to where it was. \error kFailed
Status EnterMemoryCgroup(uint64_t limit_bytes);

/// By what a rank was killed, if it was by the kernel for want of memory: in the cgroup that the
/// child `pid` has entered, or, of several children of this process that did not, in its own.
/// Looked at from a rank's start to its end.
class OomWatch {
 public:
  OomWatch();
  /// "out of memory: the kernel's OOM kill in its cgroup, limit 16 MiB", or empty.
  std::string WhyKilled(pid_t pid) const;

 private:
  int64_t own_kills_;
};

/// Removes the cgroups of this process's children, which are gone.
void RemoveCgroups();

}  // namespace shardproof
