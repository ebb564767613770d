#include "src/load/rope.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/pow.h>

#include "src/model/model.h"

namespace shardproof {

void FillInverseFrequencies(Slot& slot) {
  const double dim = 2.0 * static_cast<double>(slot.value.numel());
  const at::Tensor exponent = at::arange(0, dim, 2, at::kFloat).div(dim);
  slot.value.copy_(at::pow(slot.spec.rope->theta, exponent).reciprocal());
  slot.content = SlotContent::kDefined;
}

}  // namespace shardproof
