// Buffers that a formula defines: the inverse frequencies of rotary position embeddings, as they
// are when a model is built.
//
// With n = dim, w(i) = theta^(-2i/n) and p(i) = theta^(2i/n):
//   default, dynamic  w(i)             (dynamic acts only on sequences beyond the model's own
//   length) linear            w(i) / factor proportional      w(i) / factor for i < rotated, else 0
//   longrope          1 / (short_factor[i] * p(i))
//   yarn              1 / (factor * p(i)) * (1 - e(i)) + w(i) * e(i), where e falls from 1 to 0
//   between
//                     the frequencies that turn beta_fast and beta_slow times in original_length
//   llama3            w(i) where the wavelength 2 pi / w(i) is below original_length /
//                     high_freq_factor, w(i) / factor where it is above original_length /
//                     low_freq_factor, and in between a blend of the two
// Computed by ATen in F32, one operation after the other as the Transformers library's
// modeling_rope_utils does, so that the two agree to the bit within one process.
#pragma once

namespace shardproof {

struct Slot;

/// Writes what slot.spec.rope says into `slot.value`, F32 [n] and not meta, and marks it defined.
void FillInverseFrequencies(Slot& slot);

}  // namespace shardproof
