#pragma once

#include "src/contract/stages.h"

namespace shardproof {

/// The reference's own leaves for a strategy.
Stages ReferenceStages(Strategy strategy);

}  // namespace shardproof
