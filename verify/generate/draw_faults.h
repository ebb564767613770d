// The faults of a case.
#pragma once

#include <vector>

#include "verify/case/case.h"
#include "verify/case/fault_draw.h"

namespace shardproof::draw {

/// One fault, or two: such that both strike, or of which either may come first, beside one that
/// strikes early for certain, or one that strikes late if the other has not. The case is then
/// judged by what comes of them alone. Only within CaseOf.
/// \param made  has its model, meshes, transport and steps
void AddFaults(Case& made, const std::vector<DrawnFault>& faults);

/// Damage of saves where they are read, of which one at least is left whole: the job recovers.
/// \param kept  saves that stay on disk, more than one; the faults of `made` are replaced
void AddDamageOfSaves(Case& made, int64_t kept);

/// A damaged source, which must be refused; nothing if it may hold no byte. Likewise.
void AddDamage(Case& made);

/// What is in the way of a save: what no save has written, or what one may replace. Likewise.
void AddOccupied(Case& made);

}  // namespace shardproof::draw
