// Filling shards by broadcast, bucket by bucket.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include <ATen/ops/from_blob.h>

#include "src/load/buckets.h"
#include "src/load/load.h"

namespace shardproof {
namespace {

// While one part is unpacked the others travel, so a rank that is scheduled late holds nobody up.
// ConnectGloo has a thread for each.
constexpr size_t kParts = 4;

// Below this a system call costs more than it saves.
constexpr size_t kCommitBytesMin = 256 << 10;

/// One part of the staging bucket, and the broadcast that fills it.
struct Part {
  at::Tensor memory;  ///< undefined on the rank that reads
  const Bucket* bucket = nullptr;
  std::unique_ptr<Pending> pending;
};

/// Commits a tensor's pages in one go: the copy would otherwise fault on one after the other. (Huge
/// pages would be fewer, but where the kernel has to fetch them from a hypervisor they cost more.)
void CommitPages(const at::Tensor& tensor) {
  if (!tensor.is_cpu() || tensor.nbytes() < kCommitBytesMin) return;
  const uintptr_t page = ::sysconf(_SC_PAGESIZE);
  const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  const uintptr_t first = address / page * page;
  // A kernel that refuses leaves them to the copy.
  (void)::madvise(reinterpret_cast<void*>(first), address + tensor.nbytes() - first,
                  MADV_POPULATE_WRITE);
}

/// The bytes of `bucket` in the mapping, which stays open as long as the tensor lives.
at::Tensor MappedPayload(const Bucket& bucket, const Source& source) {
  const auto& file = source.files.at(bucket.file);
  // ATen has no const views; a broadcast only reads root's payload.
  auto* bytes = const_cast<std::byte*>(file->data()) + bucket.offset;
  return at::from_blob(bytes, {static_cast<int64_t>(bucket.bytes)}, [file](void*) {}, at::kByte);
}

/// Memory for the parts in which payloads arrive; none where they are sent.
Status AllocateParts(std::array<Part, kParts>& parts, const std::vector<Bucket>& buckets,
                     const Source& source, Device& device) {
  if (source.mapped()) return Ok();
  uint64_t bytes = 0;
  for (const Bucket& bucket : buckets) bytes = std::max(bytes, bucket.bytes);
  for (size_t p = 0; p < std::min(kParts, buckets.size()); ++p) {
    SP_ASSIGN(parts[p].memory, device.Allocate({static_cast<int64_t>(bytes)}, at::kByte, "bucket"));
  }
  return Ok();
}

}  // namespace

Status FillByBroadcast(Model&, const KeyMatch& keys, const Source& source, const Stages& stages,
                       const Job& job, World& world) {
  std::map<std::string, std::shared_ptr<Slot>> slots;
  for (const auto& [slot, key] : keys.loads) slots[slot->spec.name] = slot;
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
    at::Tensor payload = source.mapped() ? MappedPayload(bucket, source)
                                         : part.memory.narrow(0, 0, bucket.bytes);
    SP_ASSIGN(part.pending, world.communicator->Broadcast(payload, 0, bucket.pieces));
    part.bucket = &bucket;
  }
  for (size_t i = 0; i < kParts; ++i) SP_TRY(receive(parts[(buckets.size() + i) % kParts]));
  for (const auto& [slot, key] : keys.loads) slot->content = SlotContent::kDefined;
  return Ok();
}

}  // namespace shardproof
