// The seccomp filter that makes a program stop at some of its system calls. Internal to the folder.
#pragma once

#include <linux/filter.h>

#include <vector>

namespace shardproof::trace {

/// What the tracer is told with the stop.
constexpr unsigned kAskedFor = 0;
constexpr unsigned kForeign = 1;  ///< not a call of x86-64

/// Stops at `calls`, and at all calls of another architecture; lets everything else run.
std::vector<sock_filter> FilterFor(const std::vector<long>& calls);

/// Installs it in this thread for good. Safe between fork and exec. \returns 0 or errno.
int InstallFilter(const std::vector<sock_filter>& filter);

}  // namespace shardproof::trace
