// Filling shards by broadcast, bucket by bucket.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "src/load/buckets.h"
#include "src/load/load.h"

namespace shardproof {
namespace {

/// One half of the staging bucket, and the broadcast that fills it.
struct Half {
  at::Tensor memory;
  const Bucket* bucket = nullptr;
  std::unique_ptr<Pending> pending;
};

std::byte* BytesOf(at::Tensor& memory) {
  return static_cast<std::byte*>(memory.mutable_data_ptr());
}

void Pack(const Bucket& bucket, const Source& source,
          const std::map<std::string, std::string>& key_of, std::byte* payload) {
  for (const Piece& piece : bucket.pieces) {
    const SourceTensor& tensor = source.tensors.at(key_of.at(piece.tensor));
    std::memcpy(payload + piece.offset, source.BytesOf(tensor) + piece.global_start, piece.length);
  }
}

}  // namespace

Status FillByBroadcast(Model&, const KeyMatch& keys, const Source& source, const Stages& stages,
                       const Job& job, World& world) {
  std::map<std::string, std::shared_ptr<Slot>> slots;
  std::map<std::string, std::string> key_of;
  for (const auto& [slot, key] : keys.loads) {
    slots[slot->spec.name] = slot;
    key_of[slot->spec.name] = key;
  }
  const std::vector<Bucket> buckets = PlanBuckets(keys, std::max<uint64_t>(1, job.bucket_bytes / 2));
  std::array<Half, 2> halves;
  Status allocated = Ok();
  for (size_t h = 0; h < std::min(halves.size(), buckets.size()) && allocated.ok(); ++h) {
    auto memory = world.device->Allocate({static_cast<int64_t>(buckets[0].bytes)}, at::kByte,
                                         "bucket");
    if (memory.ok()) halves[h].memory = memory.value();
    else allocated = memory.error();
  }
  SP_TRY(Agree(*world.communicator, allocated, "allocating the bucket"));

  const auto receive = [&](Half& half) -> Status {
    if (half.bucket == nullptr) return Ok();
    SP_TRY(half.pending->Wait());
    stages.unpack(half.bucket->pieces, BytesOf(half.memory), slots);
    half.bucket = nullptr;
    return Ok();
  };
  for (size_t i = 0; i < buckets.size(); ++i) {
    Half& half = halves[i % 2];
    SP_TRY(receive(half));  // the half is free again only now
    if (world.rank() == 0) Pack(buckets[i], source, key_of, BytesOf(half.memory));
    SP_ASSIGN(half.pending,
              world.communicator->Broadcast(half.memory.narrow(0, 0, buckets[i].bytes), 0,
                                            buckets[i].pieces));
    half.bucket = &buckets[i];
  }
  SP_TRY(receive(halves[buckets.size() % 2]));
  SP_TRY(receive(halves[(buckets.size() + 1) % 2]));
  for (const auto& [slot, key] : keys.loads) slot->content = SlotContent::kDefined;
  return Ok();
}

}  // namespace shardproof
