#include "src/model/rope.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_not.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/core/check.h"
#include "src/model/model.h"

namespace shardproof {
namespace {

/// theta^(2i/dim) for the first `count` i. F32 [count].
at::Tensor Powers(const RopeSpec& rope, int64_t dim, int64_t count) {
  return at::pow(rope.theta, at::arange(0, 2 * count, 2, at::kFloat).div(static_cast<double>(dim)));
}

at::Tensor Llama3(const RopeSpec& rope, const at::Tensor& plain) {
  const auto length = static_cast<double>(rope.original_length);
  const double low = rope.low_freq_factor;
  const double high = rope.high_freq_factor;
  const at::Tensor wavelength = plain.reciprocal().mul(2 * std::numbers::pi);
  const at::Tensor scaled = at::where(wavelength.gt(length / low), plain.div(rope.factor), plain);
  const at::Tensor smooth = wavelength.reciprocal().mul(length).sub(low).div(high - low);
  const at::Tensor blended =
      smooth.neg().add(1).mul(scaled).div(rope.factor).add(smooth.mul(scaled));
  const at::Tensor between = at::bitwise_not(wavelength.lt(length / high))
                                 .mul(at::bitwise_not(wavelength.gt(length / low)));
  return at::where(between, blended, scaled);
}

at::Tensor Yarn(const RopeSpec& rope, int64_t dim, const at::Tensor& powers) {
  // The (fractional) index of the frequency that turns so often in the original length.
  const auto index_of = [&](double turns) {
    const auto length = static_cast<double>(rope.original_length);
    return dim * std::log(length / (turns * 2 * std::numbers::pi)) / (2 * std::log(rope.theta));
  };
  double first = index_of(rope.beta_fast);
  double last = index_of(rope.beta_slow);
  if (rope.truncate) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, static_cast<double>(dim - 1));
  if (first == last) last += 0.001;  // a step, and no division by zero
  const at::Tensor ramp =
      at::clamp(at::arange(powers.numel(), at::kFloat).sub(first).div(last - first), 0, 1);
  const at::Tensor kept = ramp.neg().add(1);
  const at::Tensor interpolated = powers.mul(rope.factor).reciprocal();
  return interpolated.mul(kept.neg().add(1)).add(powers.reciprocal().mul(kept));
}

at::Tensor Proportional(const RopeSpec& rope, int64_t dim, int64_t count) {
  at::Tensor frequencies = at::zeros({count}, at::kFloat);
  frequencies.narrow(0, 0, rope.rotated).copy_(Powers(rope, dim, rope.rotated).reciprocal());
  return frequencies.div(rope.factor);
}

at::Tensor InverseFrequencies(const RopeSpec& rope, int64_t count) {
  const int64_t dim = rope.dim == 0 ? 2 * count : rope.dim;
  if (rope.kind == RopeKind::kProportional) return Proportional(rope, dim, count);
  const at::Tensor powers = Powers(rope, dim, count);
  switch (rope.kind) {
    case RopeKind::kLinear:
      return powers.reciprocal().div(rope.factor);
    case RopeKind::kYarn:
      return Yarn(rope, dim, powers);
    case RopeKind::kLongrope: {
      SP_CHECK(static_cast<int64_t>(rope.short_factor.size()) == count);
      return at::tensor(rope.short_factor, at::kFloat).mul(powers).reciprocal();
    }
    case RopeKind::kLlama3:
      return Llama3(rope, powers.reciprocal());
    default:
      return powers.reciprocal();
  }
}

}  // namespace

void FillInverseFrequencies(Slot& slot) {
  const at::Tensor frequencies =
      InverseFrequencies(*slot.spec.rope, slot.value.numel()).contiguous();
  SP_CHECK(frequencies.nbytes() == slot.value.nbytes(), "%s", slot.spec.name.c_str());
  slot.CopyIn(0, frequencies.const_data_ptr(), frequencies.nbytes());
  slot.content = SlotContent::kDefined;
}

}  // namespace shardproof
