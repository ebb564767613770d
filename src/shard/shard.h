// The leaves that turn a model into this rank's part of it.
#pragma once

#include "src/contract/stages.h"

namespace shardproof {

/// Which dim each axis cuts. Buffers and 0-dim parameters are replicated; else:
/// - "tp" cuts what a tensor-parallel plan cuts: dim 0 (the output) of most matrices and of their
///   biases, dim 1 (the input) of projections back into the residual stream; vectors stay whole.
///   Only the data are laid out so: nothing is computed.
/// - "ep" gives each coordinate whole experts (dim 0 of tensors under ".experts."); what is no
/// expert
///   is cut further along dim 0, as if "ep" were one more axis of "dp_shard".
/// - "dp_shard" cuts dim 0 of what those leave, as FSDP2 does.
/// - Any other axis replicates.
/// An axis that cuts a dim after one to its right has cut it is a strided shard, as DTensor has it.
std::vector<Placement> PlaceOnMesh(const Slot& slot, const Mesh& mesh);

Shard ChunkSlot(const Slot& slot, const std::vector<Placement>& placements, const Mesh& mesh,
                const std::vector<int64_t>& coordinates);

/// Meta stays meta at the shard's shape; so does what only views the source; a full copy becomes a
/// copy of this rank's part.
Status ShardModel(Model& model, const KeyMatch& keys, const Stages& stages, const Job& job,
                  World& world);

/// Gives meta slots memory of undefined content and leaves every other slot as it is.
Status MaterializeMeta(Model& model, World& world);

}  // namespace shardproof
