#include "src/model/model.h"

#include <cstring>
#include <map>
#include <set>

#include "src/load/initial_value.h"
#include "src/load/rope.h"

namespace shardproof {
namespace {

int64_t NextIdentity() {
  static thread_local int64_t next = 0;
  return next++;
}

void Visit(const Module& module, const std::string& prefix,
           const std::function<void(const std::string&, const std::shared_ptr<Slot>&)>& visit) {
  for (const auto& [name, slot] : module.slots) visit(prefix + name, slot);
  for (const auto& child : module.children) Visit(*child, prefix + child->name + ".", visit);
}

/// The module that holds the leaf of `name`, made on the way; *leaf is what follows the last dot.
Module& ModuleOf(Module& root, const std::string& name, std::string* leaf) {
  Module* module = &root;
  size_t begin = 0;
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', begin)) {
    const std::string part = name.substr(begin, dot - begin);
    Module* next = nullptr;
    for (const auto& child : module->children) {
      if (child->name == part) next = child.get();
    }
    if (next == nullptr) {
      next = module->children.emplace_back(std::make_unique<Module>()).get();
      next->name = part;
    }
    module = next;
    begin = dot + 1;
  }
  *leaf = name.substr(begin);
  return *module;
}

Status BuildReal(Slot& slot, uint64_t seed, double scale, Device& device) {
  SP_ASSIGN(slot.value, device.Allocate(slot.spec.shape, slot.spec.dtype, slot.spec.name));
  if (slot.spec.rope) FillInverseFrequencies(slot);
  else FillInitialValue(slot, seed, scale);
  return Ok();
}

}  // namespace

Slot::Slot(TensorSpec tensor_spec)
    : spec(std::move(tensor_spec)), names{spec.name}, identity(NextIdentity()) {
  if (!spec.stored.empty()) saved_as = spec.stored.front();
  value = MetaTensor(spec.shape, spec.dtype);
  shard = ShardOf(spec.shape, {}, {}, {});
}

void Slot::CopyIn(uint64_t begin, const void* from, uint64_t bytes) const {
  if (value.is_meta()) return;  // as ATen's own copies into it
  auto* to = static_cast<std::byte*>(value.mutable_data_ptr()) + begin;
  if (device != nullptr) device->Copy(to, from, bytes);
  else std::memcpy(to, from, bytes);
}

void Slot::CopyOut(uint64_t begin, void* to, uint64_t bytes) const {
  const auto* from = static_cast<const std::byte*>(value.const_data_ptr()) + begin;
  if (device != nullptr) device->Copy(to, from, bytes);
  else std::memcpy(to, from, bytes);
}

std::vector<std::shared_ptr<Slot>> Model::Slots() const {
  std::vector<std::shared_ptr<Slot>> slots;
  std::set<const Slot*> seen;
  Visit(root, "", [&](const std::string&, const std::shared_ptr<Slot>& slot) {
    if (seen.insert(slot.get()).second) slots.push_back(slot);
  });
  return slots;
}

std::vector<std::pair<std::string, std::shared_ptr<Slot>>> Model::Named() const {
  std::vector<std::pair<std::string, std::shared_ptr<Slot>>> named;
  Visit(root, "", [&](const std::string& name, const std::shared_ptr<Slot>& slot) {
    named.emplace_back(name, slot);
  });
  return named;
}

bool Model::HasMeta() const {
  for (const auto& slot : Slots()) {
    if (slot->value.is_meta()) return true;
  }
  return false;
}

Result<Model> BuildOnMeta(const ModelSpec& spec, uint64_t seed, Device& device) {
  std::map<std::string, std::string> canonical;
  for (const auto& group : spec.ties) {
    for (const std::string& name : group) canonical[name] = group.front();
  }
  Model model;
  model.init_scale = spec.init_scale;
  std::map<std::string, std::shared_ptr<Slot>> made;
  std::map<std::string, const TensorSpec*> spec_of;
  for (const TensorSpec& tensor : spec.tensors) spec_of[tensor.name] = &tensor;
  for (const TensorSpec& tensor : spec.tensors) {
    const auto tie = canonical.find(tensor.name);
    const std::string& key = tie == canonical.end() ? tensor.name : tie->second;
    std::shared_ptr<Slot>& slot = made[key];
    if (slot == nullptr) {
      const auto named = spec_of.find(key);
      slot = std::make_shared<Slot>(named == spec_of.end() ? tensor : *named->second);
      slot->spec.name = key;
      slot->names = {key};
      slot->device = device.IsHost() ? nullptr : &device;
      if (slot->spec.built_real) SP_TRY(BuildReal(*slot, seed, spec.init_scale, device));
    }
    if (tensor.name != key) slot->names.push_back(tensor.name);
    std::string leaf;
    Module& module = ModuleOf(model.root, tensor.name, &leaf);
    module.slots.emplace_back(leaf, slot);
  }
  return model;
}

}  // namespace shardproof
