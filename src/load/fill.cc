// Filling shards by broadcast, bucket by bucket.
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>

#include "src/comm/describe.h"
#include "src/load/buckets.h"
#include "src/load/load.h"

namespace shardproof {
namespace {

/// One part of the staging bucket, and the broadcast that fills it.
struct Part {
  at::Tensor memory;  ///< undefined on the rank that reads
  const Bucket* bucket = nullptr;
  std::unique_ptr<Pending> pending;
};

/// The bytes of `bucket` in the mapping, which stays open as long as the tensor lives.
at::Tensor MappedPayload(const Bucket& bucket, const Source& source) {
  const auto& file = source.files.at(bucket.file);
  // ATen has no const views; a broadcast only reads root's payload.
  auto* bytes = const_cast<std::byte*>(file->data()) + bucket.offset;
  return at::from_blob(
      bytes, {static_cast<int64_t>(bucket.bytes)}, [file](void*) {}, at::kByte);
}

/// Memory for the parts in which payloads arrive; none where they are sent.
Status AllocateParts(std::array<Part, kParts>& parts, const std::vector<Bucket>& buckets,
                     const Source& source, Device& device) {
  if (source.mapped()) return Ok();
  uint64_t bytes = 0;
  for (const Bucket& bucket : buckets) bytes = std::max(bytes, bucket.bytes);
  for (size_t p = 0; p < std::min(kParts, buckets.size()); ++p) {
    std::vector<std::string> tensors;  // that come by this part
    for (size_t i = p; i < buckets.size(); i += kParts) {
      for (const Piece& piece : buckets[i].pieces) tensors.push_back(piece.tensor);
    }
    SP_ASSIGN(parts[p].memory, device.Allocate({static_cast<int64_t>(bytes)}, at::kByte,
                                               "the bucket of " + Contents(tensors)));
  }
  return Ok();
}

}  // namespace

Status FillByBroadcast(Model&, KeyMatch& keys, const Source& source, const Stages& stages,
                       const Job& job, World& world) {
  std::map<std::string, std::shared_ptr<Slot>> slots;
  for (const SlotKeys& load : keys.loads) slots[load.slot->spec.name] = load.slot;
  const std::vector<Bucket> buckets =
      stages.plan_buckets(keys, source, std::max<uint64_t>(1, job.bucket_bytes / kParts));
  std::array<Part, kParts> parts;
  SP_TRY(Agree(*world.communicator, AllocateParts(parts, buckets, source, *world.device),
               "allocating the bucket"));

  const auto receive = [&](Part& part) -> Status {
    if (part.bucket == nullptr) return Ok();
    SP_ASSIGN(const at::Tensor payload, part.pending->Wait());
    for (const Piece& piece : part.bucket->pieces) {
      if (piece.global_start == 0) CommitPages(slots.at(piece.tensor)->value);
    }
    stages.unpack(part.bucket->pieces, static_cast<const std::byte*>(payload.const_data_ptr()),
                  slots);
    part.bucket = nullptr;
    return Ok();
  };
  for (size_t i = 0; i < buckets.size(); ++i) {
    const Bucket& bucket = buckets[i];
    Part& part = parts[i % kParts];
    SP_TRY(receive(part));  // the part is free again only now
    at::Tensor payload =
        source.mapped() ? MappedPayload(bucket, source) : part.memory.narrow(0, 0, bucket.bytes);
    SP_ASSIGN(part.pending, world.communicator->Broadcast(payload, 0, bucket.pieces));
    part.bucket = &bucket;
  }
  for (size_t i = 0; i < kParts; ++i) SP_TRY(receive(parts[(buckets.size() + i) % kParts]));
  for (const SlotKeys& load : keys.loads) load.slot->content = SlotContent::kDefined;
  return Ok();
}

}  // namespace shardproof
