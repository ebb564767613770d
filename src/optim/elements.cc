#include "src/optim/elements.h"

#include <cstring>
#include <optional>

#include "src/optim/gradient.h"

namespace shardproof {

HostChunk::HostChunk(Slot& slot, uint64_t begin, uint64_t count)
    : slot_(slot), begin_(begin * slot.ElementBytes()), bytes_(count * slot.ElementBytes()) {
  const bool on_host = slot.device == nullptr || !slot.device->Holds(slot.value);
  if (on_host && slot.value.is_contiguous()) {
    data_ = static_cast<std::byte*>(slot.value.mutable_data_ptr()) + begin_;
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

void Gradients::Fill(const Slot& parameter, const std::byte* elements, int64_t step, uint64_t begin,
                     uint64_t count) {
  values.resize(count);
  gradients.resize(count);
  ToFloats(parameter.spec.dtype, elements, count, values.data());
  FillGradient(parameter.spec.name, parameter.shard, step, begin, count, values.data(),
               gradients.data());
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
                  const ParameterState& state, int64_t step, uint64_t begin, uint64_t count,
                  Gradients& gradients) {
  const at::ScalarType dtype = parameter.spec.dtype;
  const bool narrow_moments = state.exp_avg->spec.dtype == at::kBFloat16;
  const HostChunk first(*state.exp_avg, begin, count);
  const HostChunk second(*state.exp_avg_sq, begin, count);
  std::optional<HostChunk> master;
  if (state.master != nullptr) master.emplace(*state.master, begin, count);
  gradients.Fill(parameter, elements, step, begin, count);
  StepAdamW(scalars,
            {.parameter = {master ? master->data() : elements, !master && dtype == at::kBFloat16},
             .gradient = gradients.gradients.data(),
             .first = {first.data(), narrow_moments},
             .second = {second.data(), narrow_moments},
             .count = count});
  if (master) {
    FromFloats(dtype, master->floats(), count, elements);
    master->Return();
  }
  first.Return();
  second.Return();
}

}  // namespace shardproof
