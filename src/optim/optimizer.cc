#include "src/optim/optimizer.h"

#include <c10/util/accumulate.h>
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "src/contract/job.h"
#include "src/pickle/pickle.h"

namespace shardproof {
namespace {

/// Memory of undefined content. What is on the host beside a device is filled from there, too: the
/// device's copies reach both.
Status GiveMemory(Slot& slot, at::IntArrayRef shape, const Slot& parameter, Device& memory) {
  slot.device = parameter.device;
  SP_ASSIGN(slot.value, slot.Allocate(shape, memory));
  slot.content = SlotContent::kUndefined;
  return Ok();
}

/// A tensor of the state of `parameter`, cut and placed as that is.
Result<std::shared_ptr<Slot>> StateSlot(const Slot& parameter, const char* key,
                                        at::ScalarType dtype, Device& memory) {
  auto slot = std::make_shared<Slot>(TensorSpec{.name = parameter.spec.name + "." + key,
                                                .kind = TensorKind::kBuffer,
                                                .dtype = dtype,
                                                .shape = parameter.spec.shape,
                                                .requires_grad = false});
  slot->placements = parameter.placements;
  slot->shard = parameter.shard;
  SP_TRY(GiveMemory(*slot, slot->shard.local_shape, parameter, memory));
  return slot;
}

}  // namespace

std::vector<std::pair<std::string, std::shared_ptr<Slot>>> ParameterState::Parts() const {
  std::vector<std::pair<std::string, std::shared_ptr<Slot>>> parts = {
      {"step", step}, {"exp_avg", exp_avg}, {"exp_avg_sq", exp_avg_sq}};
  if (master != nullptr) parts.emplace_back("master", master);
  if (average != nullptr) parts.emplace_back("average", average);
  return parts;
}

const ParameterGroup* Optimizer::GroupOf(const Slot& parameter) const {
  for (const ParameterGroup& group : groups) {
    for (const auto& slot : group.slots) {
      if (slot.get() == &parameter) return &group;
    }
  }
  return nullptr;
}

Optimizer MakeOptimizer(const Model& model, const Training& training) {
  ParameterGroup decaying{.settings = {.learning_rate = training.learning_rate,
                                       .epsilon = training.epsilon,
                                       .weight_decay = training.weight_decay},
                          .attributes = {{"name", "matrices"}}};
  ParameterGroup other{.settings = {.learning_rate = training.learning_rate / 2,
                                    .epsilon = training.epsilon,
                                    .weight_decay = 0},
                       .attributes = {{"name", "rest"}}};
  for (const auto& slot : model.Slots()) {
    if (slot->spec.kind != TensorKind::kParameter || !slot->spec.requires_grad) continue;
    ParameterGroup& group = slot->spec.shape.size() >= 2 ? decaying : other;
    group.tensors.push_back(slot->value);
    group.slots.push_back(slot);
  }
  return {.groups = {std::move(decaying), std::move(other)}};
}

Status UnbindOptimizer(Optimizer& optimizer, const Model& model) {
  std::unordered_map<const c10::TensorImpl*, std::shared_ptr<Slot>> slot_of;
  for (const auto& slot : model.Slots()) slot_of[slot->value.unsafeGetTensorImpl()] = slot;
  for (ParameterGroup& group : optimizer.groups) {
    group.slots.clear();
    for (const at::Tensor& tensor : group.tensors) {
      const auto slot = slot_of.find(tensor.unsafeGetTensorImpl());
      if (slot == slot_of.end())
        return Internal("the optimizer holds a tensor that the model has not");
      group.slots.push_back(slot->second);
    }
    group.tensors.clear();
  }
  optimizer.bound = false;
  return Ok();
}

Status RebindOptimizer(Optimizer& optimizer, const Model&) {
  for (ParameterGroup& group : optimizer.groups) {
    for (const auto& slot : group.slots) group.tensors.push_back(slot->value);
  }
  optimizer.bound = true;
  return Ok();
}

bool IsStepped(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf;
}

Result<ParameterState*> MakeState(const Slot& parameter, Optimizer& optimizer, Device& device) {
  const auto elements = static_cast<uint64_t>(c10::multiply_integers(parameter.spec.shape));
  const double with_it = static_cast<double>(optimizer.elements + elements);
  ParameterState state;
  state.on_host =
      static_cast<double>(optimizer.elements_on_host) < optimizer.options.on_host * with_it;
  const std::shared_ptr<Device> host = state.on_host ? device.Host() : nullptr;
  Device& memory = host ? *host : device;
  state.step = std::make_shared<Slot>(TensorSpec{
      .name = parameter.spec.name + ".step", .kind = TensorKind::kBuffer, .requires_grad = false});
  state.step->placements.resize(parameter.placements.size());  // whole on every rank
  SP_TRY(GiveMemory(*state.step, {}, parameter, memory));
  const at::ScalarType moments = optimizer.options.moments;
  SP_ASSIGN(state.exp_avg, StateSlot(parameter, "exp_avg", moments, memory));
  SP_ASSIGN(state.exp_avg_sq, StateSlot(parameter, "exp_avg_sq", moments, memory));
  const at::ScalarType dtype = parameter.spec.dtype;
  if (dtype != at::kFloat && (dtype != at::kBFloat16 || optimizer.options.masters)) {
    SP_ASSIGN(state.master, StateSlot(parameter, "master", at::kFloat, memory));
  }
  if (optimizer.options.average > 0) {
    state.average_rest = static_cast<float>(1 - optimizer.options.average);
    SP_ASSIGN(state.average, StateSlot(parameter, "average", at::kFloat, memory));
  }
  optimizer.elements += elements;
  if (state.on_host) optimizer.elements_on_host += elements;
  return &(optimizer.state[parameter.spec.name] = std::move(state));
}

Result<std::shared_ptr<Slot>> MakeGradient(const Slot& parameter, Device& device) {
  SP_ASSIGN(auto gradient, StateSlot(parameter, "gradient", at::kFloat, device));
  FillZeros(*gradient);
  return gradient;
}

void FillZeros(Slot& slot) {
  constexpr uint64_t kBytesMax = 1u << 18;  // at a time
  const uint64_t bytes = slot.value.nbytes();
  const std::vector<std::byte> zeros(std::min(bytes, kBytesMax));
  for (uint64_t done = 0; done < bytes; done += zeros.size()) {
    slot.CopyIn(done, zeros.data(), std::min<uint64_t>(zeros.size(), bytes - done));
  }
  slot.content = SlotContent::kDefined;
}

std::map<std::string, std::string> OptionsOf(const ParameterGroup& group) {
  std::map<std::string, std::string> options = group.attributes;
  const AdamWSettings& settings = group.settings;
  options["lr"] = fmt::format("{}", settings.learning_rate);
  options["betas"] = fmt::format("({}, {})", settings.beta1, settings.beta2);
  options["eps"] = fmt::format("{}", settings.epsilon);
  options["weight_decay"] = fmt::format("{}", settings.weight_decay);
  for (const auto& [name, bytes] : group.others) {
    const auto read = pickle::ReadPickle(bytes, name);
    const auto text = read.ok() ? pickle::TextOf(read.value().root()) : read.error();
    options[name] = text.ok() ? text.value() : text.error().message;
  }
  return options;
}

}  // namespace shardproof
