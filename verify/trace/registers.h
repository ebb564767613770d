// A stopped thread's system call, in its registers. Internal to the folder.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "verify/trace/tracer.h"

namespace shardproof::trace {

struct CallAtStop {
  Call call;
  unsigned why = 0;  ///< kAskedFor, kForeign
};

/// At the stop of a filter. Nothing if the thread is gone.
std::optional<CallAtStop> ReadCall(pid_t thread);
/// At the stop after a call. Nothing if the thread is gone.
std::optional<int64_t> ReadResult(pid_t thread);

// A thread that is gone does not mind.

void SetArgument(pid_t thread, const Decision::Argument& argument);
void SetResult(pid_t thread, int64_t result);
/// At the stop of a filter: the call is not done.
void SkipCall(pid_t thread, int64_t result);

}  // namespace shardproof::trace
