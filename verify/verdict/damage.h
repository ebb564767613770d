// A fault that damages what a run reads, and what else struck beside it.
#pragma once

#include "verify/evidence/evidence.h"

namespace shardproof {

using IsDamage = bool (*)(const FaultRecord& record);

/// What was damaged in the phase, by the fault's record; null if nothing was.
const FaultRecord* DamageOf(const PhaseEvidence& phase, IsDamage is_damage);

/// Whether a fault struck in the phase that ends jobs: which of the two came first is left open.
bool IsEndedByAnother(const PhaseEvidence& phase, IsDamage is_damage);

}  // namespace shardproof
