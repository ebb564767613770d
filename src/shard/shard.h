// The leaves that turn a model into this rank's part of it.
#pragma once

#include "src/pipeline/stages.h"

namespace shardproof {

/// Parameters are cut along dim 0 on the axis "dp_shard", as FSDP2 does; 0-dim parameters and all
/// buffers are replicated.
std::vector<Placement> PlaceLikeFsdp(const Slot& slot, const Mesh& mesh);

Shard ChunkSlot(const Slot& slot, const std::vector<Placement>& placements, const Mesh& mesh,
                const std::vector<int64_t>& coordinates);

/// Meta stays meta at the shard's shape; so does what only views rank 0's source; a full copy becomes
/// a copy of this rank's part.
Status ShardModel(Model& model, const KeyMatch& keys, const Stages& stages, const Job& job,
                  World& world);

/// Gives meta slots memory of undefined content and leaves every other slot as it is.
Status MaterializeMeta(Model& model, World& world);

}  // namespace shardproof
