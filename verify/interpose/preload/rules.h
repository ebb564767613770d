// The rules of this process: read once, before the program begins.
#pragma once

#include <vector>

#include "verify/interpose/rule.h"

namespace shardproof::interpose {

/// None if the environment has none.
const std::vector<Rule>& rules();

/// Has every rule count from 0 again.
void CountAnew();

}  // namespace shardproof::interpose
