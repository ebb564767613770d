#include "src/optim/elements.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "src/model/host_bytes.h"
#include "src/optim/gradient.h"

namespace shardproof {

HostChunk::HostChunk(Slot& slot, uint64_t begin, uint64_t count)
    : slot_(slot), begin_(begin * slot.ElementBytes()), bytes_(count * slot.ElementBytes()) {
  if (std::byte* bytes = HostBytes(slot)) {
    data_ = bytes + begin_;
    return;
  }
  copy_.resize(bytes_);
  slot.CopyOut(begin_, copy_.data(), bytes_);
  data_ = copy_.data();
}

void HostChunk::Return() const {
  if (!copy_.empty()) slot_.CopyIn(begin_, copy_.data(), bytes_);
}

// Element by element: ATen's own copies make another NaN of a NaN where they end a row of vectors,
// and rows end where a shard is cut.
void ToFloats(at::ScalarType dtype, const std::byte* elements, uint64_t count, float* floats) {
  if (dtype == at::kFloat) {
    std::memcpy(floats, elements, count * sizeof(float));
  } else if (dtype == at::kBFloat16) {
    const auto* narrow = reinterpret_cast<const uint16_t*>(elements);
    for (uint64_t i = 0; i < count; ++i) floats[i] = FromBf16(narrow[i]);
  } else {
    const auto* narrow = reinterpret_cast<const at::Half*>(elements);
    for (uint64_t i = 0; i < count; ++i) floats[i] = static_cast<float>(narrow[i]);
  }
}

void FromFloats(at::ScalarType dtype, const float* floats, uint64_t count, std::byte* elements) {
  if (dtype == at::kFloat) {
    std::memcpy(elements, floats, count * sizeof(float));
  } else if (dtype == at::kBFloat16) {
    auto* narrow = reinterpret_cast<uint16_t*>(elements);
    for (uint64_t i = 0; i < count; ++i) narrow[i] = ToBf16(floats[i]);
  } else {
    auto* narrow = reinterpret_cast<at::Half*>(elements);
    for (uint64_t i = 0; i < count; ++i) narrow[i] = static_cast<at::Half>(floats[i]);
  }
}

namespace {

/// What is left of gradients of a scaled loss, which are F16, when they are taken back to the loss.
void ScaleThroughHalf(float scale, float* gradients, uint64_t count) {
  const float back = 1.0f / scale;
  for (uint64_t i = 0; i < count; ++i) {
    gradients[i] = static_cast<float>(static_cast<at::Half>(gradients[i] * scale)) * back;
  }
}

/// Moves averages of `count` elements on, to what these are now.
void MoveAverages(float rest, at::ScalarType dtype, const std::byte* elements, uint64_t count,
                  float* averages) {
  std::vector<float> now(count);
  ToFloats(dtype, elements, count, now.data());
  for (uint64_t i = 0; i < count; ++i) {
    averages[i] = std::fmaf(rest, now[i] - averages[i], averages[i]);
  }
}

}  // namespace

const float* Gradients::Make(const Slot& parameter, const std::byte* elements, uint64_t begin,
                             uint64_t count) {
  const auto stored = stored_.find(parameter.spec.name);
  if (stored == stored_.end()) {
    return OfSample(parameter, elements, batch_.samples.front(), begin, count);
  }
  gradients_.resize(kElementsMax);
  stored->second->CopyOut(begin * sizeof(float), gradients_.data(), count * sizeof(float));
  return gradients_.data();
}

const float* Gradients::OfSample(const Slot& parameter, const std::byte* elements, int64_t sample,
                                 uint64_t begin, uint64_t count) {
  gradients_.resize(kElementsMax);
  const auto* values = reinterpret_cast<const float*>(elements);
  if (parameter.spec.dtype != at::kFloat) {
    values_.resize(kElementsMax);
    ToFloats(parameter.spec.dtype, elements, count, values_.data());
    values = values_.data();
  }
  FillGradient(parameter.spec.name, parameter.shard, sample, begin, count, values,
               gradients_.data());
  if (batch_.loss_scale > 0) ScaleThroughHalf(batch_.loss_scale, gradients_.data(), count);
  return gradients_.data();
}

AdamWScalars BeginStep(const ParameterState& state, const AdamWSettings& settings,
                       float gradient_scale) {
  float taken = 0;
  state.step->CopyOut(0, &taken, sizeof taken);
  taken += 1;
  state.step->CopyIn(0, &taken, sizeof taken);
  return ScalarsOf(settings, static_cast<int64_t>(taken), gradient_scale);
}

void StepElements(const AdamWScalars& scalars, const Slot& parameter, std::byte* elements,
                  const ParameterState& state, uint64_t begin, uint64_t count,
                  Gradients& gradients) {
  const at::ScalarType dtype = parameter.spec.dtype;
  const bool narrow_moments = state.exp_avg->spec.dtype == at::kBFloat16;
  const HostChunk first(*state.exp_avg, begin, count);
  const HostChunk second(*state.exp_avg_sq, begin, count);
  std::optional<HostChunk> master;
  if (state.master != nullptr) master.emplace(*state.master, begin, count);
  std::optional<HostChunk> average;
  if (state.average != nullptr) average.emplace(*state.average, begin, count);
  for (uint64_t done = 0; done < count; done += Gradients::kElementsMax) {
    const uint64_t length = std::min(Gradients::kElementsMax, count - done);
    std::byte* const own = elements + done * c10::elementSize(dtype);
    float* const wide = master ? master->floats() + done : nullptr;
    void* const stepped = master ? static_cast<void*>(wide) : own;
    const uint64_t moments = done * state.exp_avg->ElementBytes();
    StepAdamW(scalars, {.parameter = {stepped, !master && dtype == at::kBFloat16},
                        .gradient = gradients.Make(parameter, own, begin + done, length),
                        .first = {first.data() + moments, narrow_moments},
                        .second = {second.data() + moments, narrow_moments},
                        .count = length});
    if (master) FromFloats(dtype, wide, length, own);
    if (average) MoveAverages(state.average_rest, dtype, own, length, average->floats() + done);
  }
  if (master) master->Return();
  if (average) average->Return();
  first.Return();
  second.Return();
}

}  // namespace shardproof
