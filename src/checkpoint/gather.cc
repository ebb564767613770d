// A full state dict: what all ranks have of a job, whole on rank 0.
#include <ATen/ops/empty.h>

#include <utility>
#include <vector>

#include "src/checkpoint/state_dict.h"
#include "src/model/whole.h"

namespace shardproof {
namespace {

/// What `rank` gives of a tensor.
Shard GivenBy(int64_t rank, const StateTensor& tensor, const Job& job, const Stages& stages) {
  const Slot& slot = *tensor.slot;
  if (tensor.only_rank >= 0) return ShardOf(slot.spec.shape, {}, {}, {});
  return stages.chunk(slot, slot.placements, job.mesh, job.mesh.CoordinatesOf(rank));
}

/// Sends what each rank has of a tensor to rank 0. \param whole  null on other ranks.
Status GatherTensor(const StateTensor& tensor, const Slot* whole, const Job& job,
                    const Stages& stages, World& world) {
  for (int64_t rank = 0; rank < world.communicator->world_size(); ++rank) {
    if (!tensor.IsWrittenBy(rank, job.mesh)) continue;
    const Shard shard = GivenBy(rank, tensor, job, stages);
    const uint64_t bytes = shard.ElementCount() * tensor.slot->ElementBytes();
    if (bytes == 0) continue;
    const bool gives = world.rank() == rank;
    if (rank == 0 && !gives) continue;  // what it has, it need not send
    at::Tensor payload = at::empty({static_cast<int64_t>(bytes)}, at::kByte);
    if (gives) tensor.slot->CopyOut(0, payload.mutable_data_ptr(), bytes);
    if (rank > 0) {
      const std::vector<Piece> pieces = {{tensor.slot->spec.name, 0, bytes, 0}};
      SP_ASSIGN(const auto pending, world.communicator->Broadcast(payload, rank, pieces));
      SP_ASSIGN(payload, pending->Wait());
    }
    if (whole != nullptr) {
      PutShard(*whole, shard, static_cast<const std::byte*>(payload.const_data_ptr()));
    }
  }
  return Ok();
}

}  // namespace

Result<StateDict> GatherOnRank0(StateDict state, const Job& job, const Stages& stages,
                                World& world) {
  std::vector<std::shared_ptr<Slot>> whole(state.tensors.size());
  const auto make = [&]() -> Status {
    for (size_t i = 0; i < whole.size(); ++i) {
      SP_ASSIGN(whole[i], MakeWhole(*state.tensors[i].slot, *world.device));
    }
    return Ok();
  };
  SP_TRY(Agree(*world.communicator, world.rank() == 0 ? make() : Ok(), "gathering the state"));
  for (size_t i = 0; i < whole.size(); ++i) {
    StateTensor& tensor = state.tensors[i];
    SP_TRY(GatherTensor(tensor, whole[i].get(), job, stages, world));
    tensor.only_rank = 0;
    if (whole[i] != nullptr) tensor.slot = whole[i];
  }
  return state;
}

}  // namespace shardproof
