#include "src/model/whole.h"

namespace shardproof {

Result<std::shared_ptr<Slot>> MakeWhole(const Slot& slot, Device& device) {
  auto whole = std::make_shared<Slot>(slot);
  whole->device = nullptr;
  whole->shard = ShardOf(slot.spec.shape, {}, {}, {});
  SP_ASSIGN(whole->value, whole->Allocate(slot.spec.shape, *device.Host()));
  return whole;
}

void PutShard(const Slot& whole, const Shard& shard, const std::byte* bytes) {
  const uint64_t element = whole.ElementBytes();
  for (const ElementRun& run : shard.runs) {
    for (uint64_t i = 0; i < run.count; ++i, bytes += run.length * element) {
      whole.CopyIn((run.start + i * run.stride) * element, bytes, run.length * element);
    }
  }
}

}  // namespace shardproof
