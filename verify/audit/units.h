// Quantised weights as units: codes, and the scales and other tensors that mean nothing without
// them.
#pragma once

#include "verify/audit/audit.h"
#include "verify/formats/stored.h"

namespace shardproof {

/// Holds the tensors that were read against what the checkpoint's own config says of quantisation.
/// Damage is a part that is missing, of another shape or without its codes, a scale that is not
/// finite, negative, or zero where the codes are not, a tensor of the quantiser's that was left
/// in, and a module that is quantised though the config excludes it, or the other way round.
/// In containers of floats, codes have neither NaN nor Inf. \pre all tensors of `checkpoint` are in
/// `result`, in its order.
void HoldUnits(const formats::StoredCheckpoint& checkpoint, AuditResult& result);

}  // namespace shardproof
