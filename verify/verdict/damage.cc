#include "verify/verdict/damage.h"

#include <algorithm>

namespace shardproof {

const FaultRecord* DamageOf(const PhaseEvidence& phase, IsDamage is_damage) {
  for (const RankEvidence& rank : phase.ranks) {
    for (const FaultRecord& record : rank.faults) {
      if (is_damage(record)) return &record;
    }
  }
  return nullptr;
}

bool IsEndedByAnother(const PhaseEvidence& phase, IsDamage is_damage) {
  return std::any_of(phase.ranks.begin(), phase.ranks.end(), [&](const RankEvidence& rank) {
    return std::any_of(rank.faults.begin(), rank.faults.end(), [&](const FaultRecord& record) {
      return !is_damage(record) && record.model != "go-on" && record.model != "seen";
    });
  });
}

}  // namespace shardproof
