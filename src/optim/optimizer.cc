#include "src/optim/optimizer.h"

#include <unordered_map>

namespace shardproof {

Optimizer MakeOptimizer(const Model& model) {
  ParameterGroup decaying{.options = {{"name", "matrices"}, {"lr", "0.001"}, {"weight_decay", "0.1"}}};
  ParameterGroup other{.options = {{"name", "rest"}, {"lr", "0.0005"}, {"weight_decay", "0"}}};
  for (const auto& slot : model.Slots()) {
    if (slot->spec.kind != TensorKind::kParameter || !slot->spec.requires_grad) continue;
    (slot->spec.shape.size() >= 2 ? decaying : other).tensors.push_back(slot->value);
  }
  return {.groups = {std::move(decaying), std::move(other)}};
}

Status UnbindOptimizer(Optimizer& optimizer, const Model& model) {
  std::unordered_map<const c10::TensorImpl*, std::shared_ptr<Slot>> slot_of;
  for (const auto& slot : model.Slots()) slot_of[slot->value.unsafeGetTensorImpl()] = slot;
  for (ParameterGroup& group : optimizer.groups) {
    for (const at::Tensor& tensor : group.tensors) {
      const auto slot = slot_of.find(tensor.unsafeGetTensorImpl());
      if (slot == slot_of.end()) return Internal("the optimizer holds a tensor that the model has not");
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
    group.slots.clear();
  }
  optimizer.bound = true;
  return Ok();
}

}  // namespace shardproof
