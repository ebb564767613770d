#include "src/model/model.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <set>

#include "src/model/initial_value.h"
#include "src/model/rope.h"

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
  SP_ASSIGN(slot.value, slot.Allocate(slot.spec.shape, device));
  if (slot.spec.rope)
    FillInverseFrequencies(slot);
  else
    FillInitialValue(slot, seed, scale);
  return Ok();
}

/// The dims of a tensor of these strides from the outermost in memory on.
std::vector<int64_t> OrderInMemory(const std::vector<int64_t>& strides) {
  std::vector<int64_t> order(strides.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return strides[a] > strides[b]; });
  return order;
}

/// A view of shape [shape[order[0]], shape[order[1]], ...], which is contiguous, as one of `shape`.
at::Tensor AsInModel(const at::Tensor& in_memory, const std::vector<int64_t>& order) {
  std::vector<int64_t> dims(order.size());
  for (size_t i = 0; i < order.size(); ++i) dims[order[i]] = static_cast<int64_t>(i);
  return in_memory.permute(dims);
}

std::vector<int64_t> ShapeInMemory(at::IntArrayRef shape, const std::vector<int64_t>& order) {
  std::vector<int64_t> permuted;
  for (const int64_t dim : order) permuted.push_back(shape[dim]);
  return permuted;
}

/// Calls visit(byte in memory, byte from `begin` on, bytes) for every stretch of a tensor's bytes
/// [begin, begin + bytes) in row-major order that is one stretch of its memory.
template <typename Visit>
void VisitMemory(const at::Tensor& value, uint64_t begin, uint64_t bytes, Visit visit) {
  if (value.is_contiguous()) return visit(begin, 0, bytes);
  const uint64_t element = value.element_size();
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t within = (begin + done) % element;
    uint64_t rest = (begin + done) / element;
    uint64_t place = 0;
    for (int64_t dim = value.dim(); dim-- > 0;) {
      const auto size = static_cast<uint64_t>(value.size(dim));
      place += rest % size * static_cast<uint64_t>(value.stride(dim));
      rest /= size;
    }
    const uint64_t length = std::min(element - within, bytes - done);
    visit(place * element + within, done, length);
    done += length;
  }
}

}  // namespace

Slot::Slot(TensorSpec tensor_spec)
    : spec(std::move(tensor_spec)), names{spec.name}, identity(NextIdentity()) {
  if (!spec.stored.empty()) saved_as = spec.stored.front();
  value = spec.strides.empty() ? MetaTensor(spec.shape, spec.dtype)
                               : MetaTensor(spec.shape, spec.dtype, spec.strides);
  shard = ShardOf(spec.shape, {}, {}, {});
}

Result<at::Tensor> Slot::Allocate(at::IntArrayRef shape, Device& on) const {
  if (spec.strides.empty()) return on.Allocate(shape, spec.dtype, spec.name);
  const std::vector<int64_t> order = OrderInMemory(spec.strides);
  SP_ASSIGN(const at::Tensor in_memory,
            on.Allocate(ShapeInMemory(shape, order), spec.dtype, spec.name));
  return AsInModel(in_memory, order);
}

at::Tensor Slot::OnMeta(at::IntArrayRef shape) const {
  if (spec.strides.empty()) return MetaTensor(shape, spec.dtype);
  const std::vector<int64_t> order = OrderInMemory(spec.strides);
  return AsInModel(MetaTensor(ShapeInMemory(shape, order), spec.dtype), order);
}

void Slot::CopyIn(uint64_t begin, const void* from, uint64_t bytes) const {
  if (value.is_meta()) return;  // as ATen's own copies into it
  auto* memory = static_cast<std::byte*>(value.mutable_data_ptr());
  VisitMemory(value, begin, bytes, [&](uint64_t place, uint64_t done, uint64_t length) {
    const auto* part = static_cast<const std::byte*>(from) + done;
    if (device != nullptr)
      device->Copy(memory + place, part, length);
    else
      std::memcpy(memory + place, part, length);
  });
}

void Slot::CopyOut(uint64_t begin, void* to, uint64_t bytes) const {
  const auto* memory = static_cast<const std::byte*>(value.const_data_ptr());
  VisitMemory(value, begin, bytes, [&](uint64_t place, uint64_t done, uint64_t length) {
    auto* part = static_cast<std::byte*>(to) + done;
    if (device != nullptr)
      device->Copy(part, memory + place, length);
    else
      std::memcpy(part, memory + place, length);
  });
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
