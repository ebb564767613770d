// Points of libfiu's POSIX preload, where the program has been loaded with it too.
#pragma once

#include "verify/interpose/rule.h"

namespace shardproof::interpose {

/// Has libfiu ask the rules whenever it comes to the rule's point. Refuses a point that the
/// installed preload does not have, since it would never fire.
void EnablePoint(const Rule& rule);

}  // namespace shardproof::interpose
