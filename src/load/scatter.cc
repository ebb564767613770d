// Filling shards by scatter, parcel by parcel; and from each rank's own mapping, with no parcels.
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "src/comm/describe.h"
#include "src/load/load.h"
#include "src/load/parcels.h"

namespace shardproof {
namespace {

/// A view of what is in the mapping.
at::Tensor BytesAt(const std::byte* data, uint64_t bytes) {
  // ATen has no const views; root's payloads are only read.
  return at::from_blob(const_cast<std::byte*>(data), {static_cast<int64_t>(bytes)}, at::kByte);
}

/// Bytes [begin, begin + bytes) of a tensor, wherever it is.
at::Tensor BytesOf(const at::Tensor& tensor, uint64_t begin, uint64_t bytes) {
  return tensor.view({-1}).view(at::kByte).narrow(0, static_cast<int64_t>(begin),
                                                  static_cast<int64_t>(bytes));
}

/// Bytes [window.begin, ...) of a window that a rank holding `shard` has; at most the window's.
uint64_t HeldBytes(const Window& window, const Shard& shard) {
  const uint64_t held = shard.ElementCount() * c10::elementSize(window.load->slot->spec.dtype);
  return std::min(window.end, held) - std::min(window.begin, held);
}

// Of what is digested after it was copied: so little is still in the cache then.
constexpr uint64_t kPieceBytesMax = 256u << 10;

/// Adds what a slot has in its bytes `local` to the digests of the keys that it is filled from.
void AddDigests(SlotKeys& load, ByteSpan local, const Stages& stages) {
  for (KeyPart& part : load.parts) {
    if (!part.digest) part.digest.emplace();
    *part.digest += stages.digest(*load.slot, {part.start, part.start + part.length}, local);
  }
}

/// One scatter under way, and the memory that it needs on this rank.
struct ScatterPart {
  at::Tensor received;             ///< staging for what does not arrive in place
  std::vector<at::Tensor> staged;  ///< rank 0: one a rank, for what is no stretch of the mapping
  const Parcel* parcel = nullptr;
  bool in_place = false;
  std::unique_ptr<Pending> pending;
};

class Scatterer {
 public:
  Scatterer(const Source& source, const ShardsOf& shards_of, World& world)
      : source_(source), shards_of_(shards_of), world_(world) {}

  /// Staging is shared out over the parts, and on rank 0 over the ranks.
  Status Allocate(uint64_t bytes, const std::vector<Parcel>& parcels) {
    for (size_t p = 0; p < std::min(kParts, parcels.size()); ++p) {
      std::vector<std::string> tensors;  // that come by this part
      for (size_t i = p; i < parcels.size(); i += kParts) {
        for (const std::string& name : NamesIn(parcels[i])) tensors.push_back(name);
      }
      const std::string purpose = "the bucket of " + Contents(tensors);
      SP_ASSIGN(parts_[p].received, Staging(bytes, purpose));
      for (int64_t rank = 0; source_.mapped() && rank < world_.communicator->world_size(); ++rank) {
        SP_ASSIGN(parts_[p].staged.emplace_back(), Staging(bytes, purpose));
      }
    }
    return Ok();
  }

  Status Send(const Parcel& parcel, size_t turn) {
    ScatterPart& part = parts_[turn % kParts];
    SP_TRY(Receive(part));  // the part is free again only now
    std::vector<at::Tensor> payloads;
    if (source_.mapped()) {
      std::vector<std::vector<Shard>> shards;  // by window, then by rank
      for (const Window& window : parcel.windows) shards.push_back(shards_of_(*window.load->slot));
      for (size_t rank = 0; rank < part.staged.size(); ++rank) {
        payloads.push_back(PayloadFor(parcel, shards, rank, part.staged[rank]));
      }
    }
    at::Tensor own = InPlace(parcel);
    part.in_place = own.defined();
    if (!part.in_place) own = part.received.narrow(0, 0, static_cast<int64_t>(parcel.bytes));
    SP_ASSIGN(part.pending,
              world_.communicator->Scatter(own, std::move(payloads), 0, NamesIn(parcel)));
    part.parcel = &parcel;
    return Ok();
  }

  Status Finish(size_t turns) {
    for (size_t i = 0; i < kParts; ++i) SP_TRY(Receive(parts_[(turns + i) % kParts]));
    return Ok();
  }

 private:
  static std::vector<std::string> NamesIn(const Parcel& parcel) {
    std::vector<std::string> tensors;
    for (const Window& window : parcel.windows) tensors.push_back(window.load->slot->spec.name);
    return tensors;
  }

  Result<at::Tensor> Staging(uint64_t bytes, const std::string& purpose) {
    return world_.device->Allocate({static_cast<int64_t>(bytes)}, at::kByte, purpose);
  }

  /// Rank 0: what `rank` gets of a parcel; a view of the mapping if it is one stretch of it.
  at::Tensor PayloadFor(const Parcel& parcel, const std::vector<std::vector<Shard>>& shards,
                        size_t rank, const at::Tensor& staged) const {
    const Window& only = parcel.windows.front();
    if (parcel.windows.size() == 1) {
      const Shard& shard = shards.front()[rank];
      const bool full = HeldBytes(only, shard) == parcel.bytes;
      const auto* bytes =
          full ? StretchOfSource(*only.load, shard, only.begin, only.end, source_) : nullptr;
      if (bytes != nullptr) return BytesAt(bytes, parcel.bytes);
    }
    at::Tensor payload = staged.narrow(0, 0, static_cast<int64_t>(parcel.bytes));
    auto* to = static_cast<std::byte*>(payload.mutable_data_ptr());
    for (size_t i = 0; i < parcel.windows.size(); ++i) {
      const Window& window = parcel.windows[i];
      const Shard& shard = shards[i][rank];
      const uint64_t held = HeldBytes(window, shard);
      if (held > 0) {
        CopyFromSource(*window.load, shard, window.begin, window.begin + held, source_,
                       *world_.device, to);
      }
      to += window.end - window.begin;
    }
    return payload;
  }

  /// This rank's memory for a parcel, if that is one stretch of one shard in row-major order; else
  /// undefined.
  at::Tensor InPlace(const Parcel& parcel) const {
    const Window& only = parcel.windows.front();
    Slot& slot = *only.load->slot;
    if (parcel.windows.size() != 1 || HeldBytes(only, slot.shard) != parcel.bytes) return {};
    if (!slot.value.is_contiguous()) return {};
    if (only.begin == 0) CommitPages(slot.value);
    return BytesOf(slot.value, only.begin, parcel.bytes);
  }

  Status Receive(ScatterPart& part) {
    if (part.parcel == nullptr) return Ok();
    SP_ASSIGN(const at::Tensor payload, part.pending->Wait());
    const auto* from = static_cast<const std::byte*>(payload.const_data_ptr());
    for (const Window& window : part.parcel->windows) {
      Slot& slot = *window.load->slot;
      const uint64_t held = part.in_place ? 0 : HeldBytes(window, slot.shard);
      if (held > 0) slot.CopyIn(window.begin, from, held);
      from += window.end - window.begin;
    }
    part.parcel = nullptr;
    return Ok();
  }

  const Source& source_;
  const ShardsOf& shards_of_;
  World& world_;
  std::array<ScatterPart, kParts> parts_;
};

}  // namespace

Status FillByScatter(Model&, KeyMatch& keys, const Source& source, const Stages& stages,
                     const Job& job, World& world) {
  const ShardsOf shards_of = [&](const Slot& slot) {
    std::vector<Shard> shards;
    for (int64_t rank = 0; rank < job.mesh.WorldSize(); ++rank) {
      shards.push_back(stages.chunk(slot, slot.placements, job.mesh, job.mesh.CoordinatesOf(rank)));
    }
    return shards;
  };
  // Rank 0 stages what all ranks get, and receives its own besides.
  const auto shares = static_cast<uint64_t>(kParts) * (job.mesh.WorldSize() + 1);
  const std::vector<Parcel> parcels = stages.plan_parcels(
      keys, source, shards_of, std::max<uint64_t>(1, job.bucket_bytes / shares));
  uint64_t bytes = 0;
  for (const Parcel& parcel : parcels) bytes = std::max(bytes, parcel.bytes);
  Scatterer scatterer(source, shards_of, world);
  SP_TRY(Agree(*world.communicator, scatterer.Allocate(bytes, parcels), "allocating the bucket"));
  for (size_t i = 0; i < parcels.size(); ++i) SP_TRY(scatterer.Send(parcels[i], i));
  SP_TRY(scatterer.Finish(parcels.size()));
  for (const SlotKeys& load : keys.loads) load.slot->content = SlotContent::kDefined;
  return Ok();
}

Status FillFromSource(Model&, KeyMatch& keys, const Source& source, const Stages& stages,
                      const Job& job, World& world) {
  const std::vector<int64_t> coordinates = job.mesh.CoordinatesOf(world.rank());
  for (SlotKeys& load : keys.loads) {
    Slot& slot = *load.slot;
    slot.content = SlotContent::kDefined;
    const uint64_t bytes = slot.shard.ElementCount() * slot.ElementBytes();
    if (bytes == 0) continue;
    if (world.device->IsHost() && slot.value.is_contiguous()) {
      CommitPages(slot.value);
      auto* to = static_cast<std::byte*>(slot.value.mutable_data_ptr());
      const bool digested = source.sealed && IsFirstReplica(slot.placements, coordinates);
      const uint64_t most = digested ? kPieceBytesMax : bytes;
      for (uint64_t done = 0; done < bytes; done += most) {
        const uint64_t end = std::min(bytes, done + most);
        CopyFromSource(load, slot.shard, done, end, source, *world.device, to + done);
        if (digested) AddDigests(load, {done, end}, stages);
      }
      continue;
    }
    // Gathered first: a copy to a device for every short run would take its time, and what does not
    // lie in row-major order is not written as it is read.
    const uint64_t side =
        std::max(job.bucket_bytes / slot.ElementBytes(), uint64_t{1}) * slot.ElementBytes();
    std::vector<std::byte> gathered(std::min(side, bytes));
    for (uint64_t done = 0; done < bytes; done += gathered.size()) {
      const uint64_t length = std::min<uint64_t>(gathered.size(), bytes - done);
      CopyFromSource(load, slot.shard, done, done + length, source, *world.device, gathered.data());
      slot.CopyIn(done, gathered.data(), length);
    }
  }
  return Ok();
}

}  // namespace shardproof
