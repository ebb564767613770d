#include "src/shard/shard.h"

#include <algorithm>
#include <set>
#include <vector>

#include "src/core/check.h"

namespace shardproof {
namespace {

constexpr uint64_t kReadBytesMax = 1 << 20;

/// Replaces the whole tensor of a slot by a copy of the elements that its shard owns.
Status KeepShard(Slot& slot, Device& device) {
  Slot whole = slot;
  SP_ASSIGN(slot.value, slot.Allocate(slot.shard.local_shape, device));
  if (slot.value.nbytes() == 0) return Ok();
  const uint64_t element = slot.ElementBytes();
  const bool as_it_lies = whole.value.is_contiguous();
  const auto* data = static_cast<const std::byte*>(whole.value.const_data_ptr());
  std::vector<std::byte> staged;
  uint64_t local = 0;  // bytes
  for (const ElementRun& run : slot.shard.runs) {
    for (uint64_t i = 0; i < run.count; ++i) {
      const uint64_t begin = (run.start + i * run.stride) * element;
      const uint64_t length = run.length * element;
      if (as_it_lies) {
        slot.CopyIn(local, data + begin, length);
        local += length;
        continue;
      }
      for (uint64_t done = 0; done < length; done += staged.size()) {
        staged.resize(std::min(length - done, kReadBytesMax));
        whole.CopyOut(begin + done, staged.data(), staged.size());
        slot.CopyIn(local, staged.data(), staged.size());
        local += staged.size();
      }
    }
  }
  return Ok();
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
      slot->value = slot->OnMeta(slot->shard.local_shape);
      slot->content = SlotContent::kNone;
    } else if (full.sizes() != at::IntArrayRef(slot->shard.local_shape)) {
      SP_TRY(KeepShard(*slot, *world.device));
    }
  }
  return Ok();
}

Status MaterializeMeta(Model& model, World& world) {
  for (const auto& slot : model.Slots()) {
    if (!slot->value.is_meta()) continue;
    SP_ASSIGN(slot->value, slot->Allocate(slot->shard.local_shape, *world.device));
    slot->content = SlotContent::kUndefined;
  }
  return Ok();
}

}  // namespace shardproof
