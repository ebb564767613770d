// What of a job is saved, under which keys, whatever the format.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/contract/job.h"
#include "src/contract/stages.h"
#include "src/core/state_path.h"
#include "src/model/model.h"

namespace shardproof {

/// One of the keys that a fused tensor is kept under.
struct StatePart {
  std::vector<int64_t> shape;
  uint64_t start = 0;  ///< its first element, in the row-major order of the whole
};

struct StateTensor {
  std::vector<StatePath> paths;  ///< more than one if tied: all of them say the same place
  std::shared_ptr<Slot> slot;
  int64_t only_rank = -1;         ///< the one rank that has it, whole; -1: as its placements say
  std::optional<StatePart> part;  ///< absent: the whole

  const std::vector<int64_t>& shape() const { return part ? part->shape : slot->spec.shape; }
  /// Of the slot's global byte image.
  ByteSpan image() const;
  uint64_t bytes() const { return image().end - image().begin; }
  /// Whether `rank` writes what it has of it: of replicas the first does.
  bool IsWrittenBy(int64_t rank, const Mesh& mesh) const;
};

/// All that a checkpoint is to hold, alike on every rank (of a tensor that only one rank has, the
/// others know dtype and shape).
struct StateDict {
  std::vector<StateTensor> tensors;
  std::vector<StateValue> values;
};

/// The state dict of a job: "model", and of one that trains "optimizer", "step", "rng_<rank>", what
/// its loop keeps and what else it was restored with. Keys are those of
/// torch.distributed.checkpoint.state_dict.get_state_dict.
StateDict StateOf(const Model& model, const World& world);

/// The same as rank 0 writes it alone: there every tensor is whole, in the host's memory; elsewhere
/// nothing is kept of it. One tensor of one rank travels at a time. Collective. \error as
/// Device::Allocate, on every rank.
Result<StateDict> GatherOnRank0(StateDict state, const Job& job, const Stages& stages,
                                World& world);

/// The same with fused tensors, and what the optimizer keeps of them, under the keys that
/// checkpoints keep their parts under: of each Slot::saved_as. A counter, which has no parts,
/// stands under each.
StateDict SplitFused(StateDict state);

}  // namespace shardproof
