#include "src/optim/step.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "src/numeric/exact_sum.h"
#include "src/optim/gradient.h"

namespace shardproof {
namespace {

constexpr uint64_t kChunkElements = 1u << 16;  // staging stays small whatever the tensor's size

/// Elements [begin, begin + count) of what a slot holds, in row-major order, where the host
/// computes: the slot's own memory, or a copy if that is elsewhere or lies in another order.
class HostChunk {
 public:
  HostChunk(Slot& slot, uint64_t begin, uint64_t count)
      : slot_(slot), begin_(begin * slot.ElementBytes()), bytes_(count * slot.ElementBytes()) {
    if (slot.device == nullptr && slot.value.is_contiguous()) {
      data_ = static_cast<std::byte*>(slot.value.mutable_data_ptr()) + begin_;
      return;
    }
    copy_.resize(bytes_);
    slot.CopyOut(begin_, copy_.data(), bytes_);
    data_ = copy_.data();
  }
  /// Takes back to the slot what was computed here.
  void Return() const {
    if (!copy_.empty()) slot_.CopyIn(begin_, copy_.data(), bytes_);
  }
  std::byte* data() const { return data_; }
  float* floats() const { return reinterpret_cast<float*>(data_); }
  // Element by element: ATen's own copies make another NaN of a NaN where they end a row of
  // vectors, and rows end where a shard is cut.
  void ToFloats(float* floats) const {
    const uint64_t count = bytes_ / slot_.ElementBytes();
    if (slot_.spec.dtype == at::kFloat) {
      std::memcpy(floats, data_, bytes_);
    } else if (slot_.spec.dtype == at::kBFloat16) {
      const auto* narrow = reinterpret_cast<const uint16_t*>(data_);
      for (uint64_t i = 0; i < count; ++i) floats[i] = FromBf16(narrow[i]);
    } else {
      const auto* narrow = reinterpret_cast<const at::Half*>(data_);
      for (uint64_t i = 0; i < count; ++i) floats[i] = static_cast<float>(narrow[i]);
    }
  }
  void FromFloats(const float* floats) const {
    const uint64_t count = bytes_ / slot_.ElementBytes();
    if (slot_.spec.dtype == at::kFloat) {
      std::memcpy(data_, floats, bytes_);
    } else if (slot_.spec.dtype == at::kBFloat16) {
      auto* narrow = reinterpret_cast<uint16_t*>(data_);
      for (uint64_t i = 0; i < count; ++i) narrow[i] = ToBf16(floats[i]);
    } else {
      auto* narrow = reinterpret_cast<at::Half*>(data_);
      for (uint64_t i = 0; i < count; ++i) narrow[i] = static_cast<at::Half>(floats[i]);
    }
  }

 private:
  Slot& slot_;
  uint64_t begin_;  ///< bytes
  uint64_t bytes_;
  std::vector<std::byte> copy_;
  std::byte* data_ = nullptr;
};

/// Calls visit(parameter, group) for what a step changes, in the order of the groups.
template <typename Visit>
Status VisitStepped(const Optimizer& optimizer, Visit visit) {
  for (const ParameterGroup& group : optimizer.groups) {
    for (size_t i = 0; i < std::min(group.tensors.size(), group.slots.size()); ++i) {
      Slot& slot = *group.slots[i];
      // A tensor that the model has no more gets no gradient.
      if (!group.tensors[i].is_same(slot.value)) continue;
      if (slot.spec.requires_grad && IsStepped(slot.spec.dtype)) SP_TRY(visit(slot, group));
    }
  }
  return Ok();
}

/// The parameter's elements as floats, and their gradients.
struct Chunk {
  std::vector<float> values;
  std::vector<float> gradients;
};

void FillChunk(const Slot& parameter, const HostChunk& elements, int64_t step, uint64_t begin,
               uint64_t count, Chunk& chunk) {
  chunk.values.resize(count);
  chunk.gradients.resize(count);
  elements.ToFloats(chunk.values.data());
  FillGradient(parameter.spec.name, parameter.shard, step, begin, count, chunk.values.data(),
               chunk.gradients.data());
}

/// State as it is before the parameter's first step.
Status BeginState(Slot& parameter, Optimizer& optimizer, World& world) {
  SP_ASSIGN(ParameterState state, MakeState(parameter, optimizer.options, *world.device));
  const uint64_t elements = parameter.shard.ElementCount();
  const std::vector<std::byte> zeros(kChunkElements * sizeof(float));
  for (const auto& [key, slot] : state.Parts()) {
    slot->content = SlotContent::kDefined;
    if (slot == state.master) continue;
    const uint64_t bytes = slot->value.nbytes();
    for (uint64_t done = 0; done < bytes; done += zeros.size()) {
      slot->CopyIn(done, zeros.data(), std::min<uint64_t>(zeros.size(), bytes - done));
    }
  }
  for (uint64_t begin = 0; state.master != nullptr && begin < elements; begin += kChunkElements) {
    const uint64_t count = std::min(kChunkElements, elements - begin);
    const HostChunk master(*state.master, begin, count);
    HostChunk(parameter, begin, count).ToFloats(master.floats());
    master.Return();
  }
  optimizer.state[parameter.spec.name] = std::move(state);
  return Ok();
}

}  // namespace

Result<float> ClipGradients(const Model& model, int64_t step, const Job& job, World& world) {
  if (job.training.clip_norm <= 0) return 1.0f;
  const std::vector<int64_t> coordinates = job.mesh.CoordinatesOf(world.rank());
  ExactSquareSum sum;
  Chunk chunk;
  SP_TRY(VisitStepped(*model.optimizer, [&](Slot& parameter, const ParameterGroup&) -> Status {
    if (!IsFirstReplica(parameter.placements, coordinates)) return Ok();
    const uint64_t elements = parameter.shard.ElementCount();
    for (uint64_t begin = 0; begin < elements; begin += kChunkElements) {
      const uint64_t count = std::min(kChunkElements, elements - begin);
      FillChunk(parameter, HostChunk(parameter, begin, count), step, begin, count, chunk);
      sum.Add(chunk.gradients.data(), count);
    }
    return Ok();
  }));
  const auto parts = sum.Parts();
  SP_ASSIGN(const std::vector<int64_t> all,
            world.communicator->Sum({parts.begin(), parts.end()}, "the gradients' norm"));
  auto whole = parts;
  std::copy(all.begin(), all.end(), whole.begin());
  return ClippingScale(ExactSquareSum::FromParts(whole).Value(), job.training.clip_norm);
}

Status StepParameter(Slot& parameter, const AdamWSettings& settings, int64_t step,
                     float gradient_scale, Optimizer& optimizer, World& world) {
  if (!optimizer.state.contains(parameter.spec.name)) {
    SP_TRY(BeginState(parameter, optimizer, world));
  }
  ParameterState& state = optimizer.state.at(parameter.spec.name);
  float taken = 0;
  state.step->CopyOut(0, &taken, sizeof taken);
  taken += 1;
  state.step->CopyIn(0, &taken, sizeof taken);
  const AdamWScalars scalars = ScalarsOf(settings, static_cast<int64_t>(taken), gradient_scale);
  const bool narrow_moments = state.exp_avg->spec.dtype == at::kBFloat16;
  const uint64_t elements = parameter.shard.ElementCount();
  Chunk chunk;
  for (uint64_t begin = 0; begin < elements; begin += kChunkElements) {
    const uint64_t count = std::min(kChunkElements, elements - begin);
    const HostChunk own(parameter, begin, count);
    const HostChunk first(*state.exp_avg, begin, count);
    const HostChunk second(*state.exp_avg_sq, begin, count);
    std::optional<HostChunk> master;
    if (state.master != nullptr) master.emplace(*state.master, begin, count);
    FillChunk(parameter, own, step, begin, count, chunk);
    const HostChunk& stepped = master ? *master : own;
    StepAdamW(scalars,
              {.parameter = {stepped.data(), !master && parameter.spec.dtype == at::kBFloat16},
               .gradient = chunk.gradients.data(),
               .first = {first.data(), narrow_moments},
               .second = {second.data(), narrow_moments},
               .count = count});
    if (master) {
      own.FromFloats(master->floats());
      master->Return();
    }
    own.Return();
    first.Return();
    second.Return();
  }
  return Ok();
}

Status StepOptimizer(Model& model, int64_t step, const Stages& stages, const Job& job,
                     World& world) {
  if (job.training.unfreeze_after > 0 && step == job.training.unfreeze_after + 1) {
    SP_TRY(stages.unfreeze(model));
  }
  SP_ASSIGN(const float scale, stages.clip_gradients(model, step, job, world));
  return VisitStepped(*model.optimizer, [&](Slot& parameter, const ParameterGroup& group) {
    return stages.step_parameter(parameter, group.settings, step, scale, *model.optimizer, world);
  });
}

Status Unfreeze(Model& model) {
  const auto is_frozen = [](const Slot& slot) {
    return slot.spec.kind == TensorKind::kParameter && !slot.spec.requires_grad &&
           IsStepped(slot.spec.dtype);
  };
  for (const auto& slot : model.Slots()) {
    if (!is_frozen(*slot)) continue;
    slot->spec.requires_grad = true;
    ParameterGroup& group = model.optimizer->groups[slot->spec.shape.size() >= 2 ? 0 : 1];
    group.tensors.push_back(slot->value);
    group.slots.push_back(slot);
  }
  return Ok();
}

}  // namespace shardproof
