#include "src/checkpoint/snapshot.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "src/optim/optimizer.h"

namespace shardproof {
namespace {

constexpr uint64_t kCopiedBytesMax = 4u << 20;  // at a time, of what lies in another order

/// Copies slots, each once, however many names or holders it has.
class SlotCopier {
 public:
  explicit SlotCopier(Device& device) : device_(device), host_(device.Host()) {}

  Result<std::shared_ptr<Slot>> Copy(const std::shared_ptr<Slot>& slot) {
    if (slot == nullptr) return slot;
    const auto known = copies_.find(slot.get());
    if (known != copies_.end()) return known->second;
    auto copy = std::make_shared<Slot>(*slot);
    copy->device = nullptr;
    if (!slot->value.is_meta()) {
      SP_ASSIGN(copy->value, slot->Allocate(slot->value.sizes(), *host_));
      SP_TRY(CopyBytes(*slot, *copy));
    }
    copies_[slot.get()] = copy;
    return copy;
  }

  /// Returns once all that was begun is there.
  void Wait() {
    for (const auto& copy : under_way_) copy->Wait();
    under_way_.clear();
  }

 private:
  Status CopyBytes(const Slot& from, const Slot& to) {
    const uint64_t bytes = from.value.nbytes();
    if (bytes == 0) return Ok();
    if (from.value.is_contiguous() && to.value.is_contiguous()) {
      under_way_.push_back(
          device_.StartCopy(CopyStream::kToHost, {to.value, 0}, {from.value, 0}, bytes));
      return Ok();
    }
    std::vector<std::byte> staged;
    for (uint64_t done = 0; done < bytes; done += staged.size()) {
      staged.resize(std::min(bytes - done, kCopiedBytesMax));
      from.CopyOut(done, staged.data(), staged.size());
      to.CopyIn(done, staged.data(), staged.size());
    }
    return Ok();
  }

  Device& device_;
  std::shared_ptr<Device> host_;
  std::unordered_map<const Slot*, std::shared_ptr<Slot>> copies_;
  std::vector<std::unique_ptr<PendingCopy>> under_way_;
};

Status CopyModule(const Module& from, SlotCopier& slots, Module& to) {
  to.name = from.name;
  for (const auto& [name, slot] : from.slots) {
    SP_ASSIGN(auto copy, slots.Copy(slot));
    to.slots.emplace_back(name, std::move(copy));
  }
  for (const auto& child : from.children) {
    to.children.push_back(std::make_unique<Module>());
    SP_TRY(CopyModule(*child, slots, *to.children.back()));
  }
  return Ok();
}

Result<Optimizer> CopyOptimizer(const Optimizer& from, SlotCopier& slots) {
  Optimizer to = from;
  for (ParameterGroup& group : to.groups) {
    group.tensors.clear();
    for (auto& slot : group.slots) {
      SP_ASSIGN(slot, slots.Copy(slot));
      group.tensors.push_back(slot->value);
    }
  }
  for (auto& [name, state] : to.state) {
    for (auto* part :
         {&state.step, &state.exp_avg, &state.exp_avg_sq, &state.master, &state.average}) {
      SP_ASSIGN(*part, slots.Copy(*part));
    }
  }
  return to;
}

}  // namespace

Result<Model> TakeSnapshot(const Model& model, World& world) {
  SlotCopier slots(*world.device);
  Model copy;
  copy.init_scale = model.init_scale;
  copy.step = model.step;
  SP_TRY(CopyModule(model.root, slots, copy.root));
  if (model.optimizer != nullptr) {
    SP_ASSIGN(Optimizer optimizer, CopyOptimizer(*model.optimizer, slots));
    copy.optimizer = std::make_shared<Optimizer>(std::move(optimizer));
  }
  if (model.rng) copy.rng = model.rng->clone();
  for (const auto& [key, slot] : model.loop) {
    SP_ASSIGN(copy.loop[key], slots.Copy(slot));
  }
  copy.kept.values = model.kept.values;
  for (const auto& [path, slot] : model.kept.tensors) {
    SP_ASSIGN(auto kept, slots.Copy(slot));
    copy.kept.tensors.push_back({path, std::move(kept)});
  }
  slots.Wait();
  return copy;
}

}  // namespace shardproof
