// A process and all that have come of it.
#pragma once

#include <sys/types.h>

namespace shardproof {

/// Kills a child of this process and its descendants, as far as their parents still are there: one
/// that outlived its parent is no descendant any more. Waits for none of them.
void KillTree(pid_t child);

}  // namespace shardproof
