#include "src/optim/step.h"

#include <algorithm>

#include "src/optim/backward.h"
#include "src/optim/elements.h"
#include "src/optim/loop.h"

namespace shardproof {
namespace {

/// What is kept in F32 of a parameter's values, as they are.
void TakeValues(Slot& parameter, Slot& wide) {
  const uint64_t elements = parameter.shard.ElementCount();
  for (uint64_t begin = 0; begin < elements; begin += kChunkElements) {
    const uint64_t count = std::min(kChunkElements, elements - begin);
    const HostChunk chunk(wide, begin, count);
    ToFloats(parameter.spec.dtype, HostChunk(parameter, begin, count).data(), count,
             chunk.floats());
    chunk.Return();
  }
  wide.content = SlotContent::kDefined;
}

/// State as it is before the parameter's first step.
Status BeginState(Slot& parameter, Optimizer& optimizer, World& world) {
  SP_ASSIGN(const ParameterState* made, MakeState(parameter, optimizer, *world.device));
  const ParameterState& state = *made;
  for (const auto& [key, slot] : state.Parts()) {
    if (slot == state.master || slot == state.average)
      TakeValues(parameter, *slot);
    else
      FillZeros(*slot);
  }
  return Ok();
}

/// What is trained from step `step` on.
Status UpdateFrozen(Model& model, int64_t step, const Stages& stages, const Training& training) {
  if (training.unfreeze_after == 0) return Ok();
  const int64_t trained = step - 1 - training.unfreeze_after;  // steps of what was frozen
  if (trained == 0) return stages.unfreeze(model);
  const bool is_over = training.unfrozen_steps > 0 && trained == training.unfrozen_steps;
  return is_over ? stages.freeze_again(model) : Ok();
}

/// Steps what has a gradient.
Status StepAll(Model& model, const Batch& batch, const std::vector<float>& scales,
               const Stages& stages, const Job& job, World& world) {
  Optimizer& optimizer = *model.optimizer;
  std::vector<HostStep> on_host;
  const auto step_one = [&](Slot& parameter, size_t index) -> Status {
    const AdamWSettings& settings = optimizer.groups[index].settings;
    if (!optimizer.state.contains(parameter.spec.name)) {
      SP_TRY(BeginState(parameter, optimizer, world));
    }
    if (optimizer.state.at(parameter.spec.name).on_host) {
      on_host.push_back({&parameter, settings, scales[index]});
      return Ok();
    }
    return stages.step_parameter(parameter, settings, batch, scales[index], optimizer, world);
  };
  SP_TRY(VisitStepped(optimizer, batch, step_one));
  return on_host.empty() ? Ok() : stages.step_on_host(on_host, batch, optimizer, job, world);
}

}  // namespace

Status StepParameter(Slot& parameter, const AdamWSettings& settings, const Batch& batch,
                     float gradient_scale, Optimizer& optimizer, World&) {
  const ParameterState& state = optimizer.state.at(parameter.spec.name);
  const AdamWScalars scalars = BeginStep(state, settings, gradient_scale);
  const uint64_t elements = parameter.shard.ElementCount();
  Gradients gradients(batch, optimizer);
  for (uint64_t begin = 0; begin < elements; begin += kChunkElements) {
    const uint64_t count = std::min(kChunkElements, elements - begin);
    const HostChunk own(parameter, begin, count);
    StepElements(scalars, parameter, own.data(), state, begin, count, gradients);
    own.Return();
  }
  return Ok();
}

Status StepOptimizer(Model& model, int64_t step, const Stages& stages, const Job& job,
                     World& world) {
  SP_TRY(UpdateFrozen(model, step, stages, job.training));
  const Batch batch = stages.read_batch(model, step, job);
  if (job.training.reduce) {
    SP_TRY(stages.reduce(model, batch, stages, job, world));
  } else if (batch.samples.size() > 1) {
    SP_TRY(Agree(*world.communicator, stages.accumulate(model, batch, job, world),
                 "adding up gradients"));
  }
  bool is_skipped = false;
  if (batch.loss_scale > 0) {
    SP_ASSIGN(is_skipped, stages.overflows(model, batch, job, world));
    UpdateLossScale(model, is_skipped);
  }
  if (!is_skipped) {
    SP_ASSIGN(const std::vector<float> scales, stages.clip_gradients(model, batch, job, world));
    SP_TRY(StepAll(model, batch, scales, stages, job, world));
  }
  model.optimizer->gradients.clear();
  return Ok();
}

Status Unfreeze(Model& model) {
  const auto is_frozen = [](const Slot& slot) {
    return slot.spec.kind == TensorKind::kParameter && !slot.spec.requires_grad &&
           IsStepped(slot.spec.dtype);
  };
  for (const auto& slot : model.Slots()) {
    if (!is_frozen(*slot)) continue;
    slot->spec.requires_grad = true;
    model.optimizer->unfrozen.insert(slot->spec.name);
    ParameterGroup& group = model.optimizer->groups[slot->spec.shape.size() >= 2 ? 0 : 1];
    group.tensors.push_back(slot->value);
    group.slots.push_back(slot);
  }
  return Ok();
}

Status FreezeAgain(Model& model) {
  for (const auto& slot : model.Slots()) {
    if (model.optimizer->unfrozen.contains(slot->spec.name)) slot->spec.requires_grad = false;
  }
  return Ok();
}

}  // namespace shardproof
