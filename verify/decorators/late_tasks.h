// Background tasks that run late, in their caller's thread: what they read in the meantime, they
// read as it is then, and always alike.
#pragma once

#include <memory>

#include "src/seam/background.h"

namespace shardproof {

/// Tasks that run when somebody waits for them; one that nobody waits for never does.
std::shared_ptr<Background> DelayTasks();

}  // namespace shardproof
