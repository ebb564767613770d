#include "src/optim/step.h"

#include <algorithm>

#include "src/numeric/exact_sum.h"
#include "src/optim/elements.h"

namespace shardproof {
namespace {

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

/// State as it is before the parameter's first step.
Status BeginState(Slot& parameter, Optimizer& optimizer, World& world) {
  SP_ASSIGN(const ParameterState* made, MakeState(parameter, optimizer, *world.device));
  const ParameterState& state = *made;
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
    ToFloats(parameter.spec.dtype, HostChunk(parameter, begin, count).data(), count,
             master.floats());
    master.Return();
  }
  return Ok();
}

}  // namespace

Result<float> ClipGradients(const Model& model, int64_t step, const Job& job, World& world) {
  if (job.training.clip_norm <= 0) return 1.0f;
  const std::vector<int64_t> coordinates = job.mesh.CoordinatesOf(world.rank());
  ExactSquareSum sum;
  Gradients made;
  SP_TRY(VisitStepped(*model.optimizer, [&](Slot& parameter, const ParameterGroup&) -> Status {
    if (!IsFirstReplica(parameter.placements, coordinates)) return Ok();
    const uint64_t elements = parameter.shard.ElementCount();
    for (uint64_t begin = 0; begin < elements; begin += kChunkElements) {
      const uint64_t count = std::min(kChunkElements, elements - begin);
      const HostChunk own(parameter, begin, count);
      for (uint64_t done = 0; done < count; done += Gradients::kElementsMax) {
        const uint64_t length = std::min(Gradients::kElementsMax, count - done);
        const std::byte* elements_of = own.data() + done * parameter.ElementBytes();
        sum.Add(made.Make(parameter, elements_of, step, begin + done, length), length);
      }
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
                     float gradient_scale, Optimizer& optimizer, World&) {
  const ParameterState& state = optimizer.state.at(parameter.spec.name);
  const AdamWScalars scalars = BeginStep(state, settings, gradient_scale);
  const uint64_t elements = parameter.shard.ElementCount();
  Gradients gradients;
  for (uint64_t begin = 0; begin < elements; begin += kChunkElements) {
    const uint64_t count = std::min(kChunkElements, elements - begin);
    const HostChunk own(parameter, begin, count);
    StepElements(scalars, parameter, own.data(), state, step, begin, count, gradients);
    own.Return();
  }
  return Ok();
}

Status StepOptimizer(Model& model, int64_t step, const Stages& stages, const Job& job,
                     World& world) {
  if (job.training.unfreeze_after > 0 && step == job.training.unfreeze_after + 1) {
    SP_TRY(stages.unfreeze(model));
  }
  SP_ASSIGN(const float scale, stages.clip_gradients(model, step, job, world));
  Optimizer& optimizer = *model.optimizer;
  std::vector<HostStep> on_host;
  const auto step_one = [&](Slot& parameter, const ParameterGroup& group) -> Status {
    if (!optimizer.state.contains(parameter.spec.name)) {
      SP_TRY(BeginState(parameter, optimizer, world));
    }
    if (optimizer.state.at(parameter.spec.name).on_host) {
      on_host.push_back({&parameter, group.settings});
      return Ok();
    }
    return stages.step_parameter(parameter, group.settings, step, scale, optimizer, world);
  };
  SP_TRY(VisitStepped(optimizer, step_one));
  if (on_host.empty()) return Ok();
  return stages.step_on_host(on_host, step, scale, optimizer, job, world);
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
