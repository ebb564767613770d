#include "src/shard/shard.h"

#include <set>

#include "src/core/check.h"

namespace shardproof {
namespace {

/// A copy of the elements of `full`, which is contiguous, that `shard` owns.
Result<at::Tensor> CopyOfShard(const at::Tensor& full, const Shard& shard, const std::string& name,
                               Device& device) {
  SP_ASSIGN(at::Tensor local, device.Allocate(shard.local_shape, full.scalar_type(), name));
  if (local.nbytes() == 0) return local;
  const uint64_t element = full.element_size();
  auto* to = static_cast<std::byte*>(local.mutable_data_ptr());
  const auto* from = static_cast<const std::byte*>(full.const_data_ptr());
  for (const ElementRun& run : shard.runs) {
    for (uint64_t i = 0; i < run.count; ++i) {
      device.Copy(to, from + (run.start + i * run.stride) * element, run.length * element);
      to += run.length * element;
    }
  }
  return local;
}

}  // namespace

Shard ChunkSlot(const Slot& slot, const std::vector<Placement>& placements, const Mesh& mesh,
                const std::vector<int64_t>& coordinates) {
  return ShardOf(slot.spec.shape, placements, mesh, coordinates);
}

Status ShardModel(Model& model, const KeyMatch& keys, const Stages& stages, const Job& job,
                  World& world) {
  const std::vector<int64_t> coordinates = job.mesh.CoordinatesOf(world.rank());
  std::set<const Slot*> viewed;
  if (job.strategy != Strategy::kPlain) {
    for (const auto& [slot, parts] : keys.loads) viewed.insert(slot.get());
  }
  for (const auto& slot : model.Slots()) {
    slot->placements = stages.place(*slot, job.mesh);
    slot->shard = stages.chunk(*slot, slot->placements, job.mesh, coordinates);
    const at::Tensor full = slot->value;
    if (full.is_meta() || viewed.contains(slot.get())) {
      slot->value = MetaTensor(slot->shard.local_shape, slot->spec.dtype);
      slot->content = SlotContent::kNone;
    } else if (full.sizes() != at::IntArrayRef(slot->shard.local_shape)) {
      SP_ASSIGN(slot->value, CopyOfShard(full, slot->shard, slot->spec.name, *world.device));
    }
  }
  return Ok();
}

Status MaterializeMeta(Model& model, World& world) {
  for (const auto& slot : model.Slots()) {
    if (!slot->value.is_meta()) continue;
    SP_ASSIGN(slot->value, world.device->Allocate(slot->shard.local_shape, slot->spec.dtype,
                                                  slot->spec.name));
    slot->content = SlotContent::kUndefined;
  }
  return Ok();
}

}  // namespace shardproof
