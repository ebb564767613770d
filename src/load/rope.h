// Buffers that a formula defines.
#pragma once

namespace shardproof {

struct Slot;

/// Writes RoPE's inverse frequencies of kind "default", computed by ATen in F32 as the Transformers
/// library does: 1 / theta^(2i/dim). `slot.value` is F32 [dim/2] and not meta; slot.spec.rope is set.
void FillInverseFrequencies(Slot& slot);

}  // namespace shardproof
