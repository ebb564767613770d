// Filling shards by broadcast, bucket by bucket.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "src/load/buckets.h"
#include "src/load/load.h"

namespace shardproof {
namespace {

constexpr uintptr_t kHugePageBytes = 2 << 20;

// While one part is packed or unpacked the others travel, so a rank that is scheduled late holds
// nobody up.
constexpr size_t kParts = 4;

/// One part of the staging bucket, and the broadcast that fills it.
struct Part {
  at::Tensor memory;
  const Bucket* bucket = nullptr;
  std::unique_ptr<Pending> pending;
};

std::byte* BytesOf(at::Tensor& memory) {
  return static_cast<std::byte*>(memory.mutable_data_ptr());
}

/// Asks for huge pages where they lie wholly inside `tensor`, so that nothing beyond it is
/// committed. A fill touches every page for the first time, and one by one that costs more than the
/// copy does.
void PreferHugePages(const at::Tensor& tensor) {
  if (!tensor.is_cpu()) return;
  const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  const uintptr_t first = (address + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  const uintptr_t end = (address + tensor.nbytes()) / kHugePageBytes * kHugePageBytes;
  // A kernel that refuses gives small pages, which only cost time.
  if (first < end) (void)::madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
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
  const std::vector<Bucket> buckets =
      PlanBuckets(keys, std::max<uint64_t>(1, job.bucket_bytes / kParts));
  std::array<Part, kParts> parts;
  Status allocated = Ok();
  for (size_t p = 0; p < std::min(kParts, buckets.size()) && allocated.ok(); ++p) {
    auto memory =
        world.device->Allocate({static_cast<int64_t>(buckets[0].bytes)}, at::kByte, "bucket");
    if (memory.ok())
      parts[p].memory = memory.value();
    else
      allocated = memory.error();
  }
  SP_TRY(Agree(*world.communicator, allocated, "allocating the bucket"));
  for (const auto& [name, slot] : slots) PreferHugePages(slot->value);

  const auto receive = [&](Part& part) -> Status {
    if (part.bucket == nullptr) return Ok();
    SP_TRY(part.pending->Wait());
    stages.unpack(part.bucket->pieces, BytesOf(part.memory), slots);
    part.bucket = nullptr;
    return Ok();
  };
  for (size_t i = 0; i < buckets.size(); ++i) {
    Part& part = parts[i % kParts];
    SP_TRY(receive(part));  // the part is free again only now
    if (world.rank() == 0) Pack(buckets[i], source, key_of, BytesOf(part.memory));
    SP_ASSIGN(part.pending, world.communicator->Broadcast(
                                part.memory.narrow(0, 0, buckets[i].bytes), 0, buckets[i].pieces));
    part.bucket = &buckets[i];
  }
  for (size_t i = 0; i < kParts; ++i) SP_TRY(receive(parts[(buckets.size() + i) % kParts]));
  for (const auto& [slot, key] : keys.loads) slot->content = SlotContent::kDefined;
  return Ok();
}

}  // namespace shardproof
