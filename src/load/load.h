// The leaves that bring values into a model; pipeline/stages.h says what each is for.
#pragma once

#include "src/pipeline/stages.h"

namespace shardproof {

Result<Source> OpenSourceOnRank0(const Job& job, World& world);
Result<Source> OpenSourceOnEveryRank(const Job& job, World& world);

/// Rank 0's slots become views of the mapping (no memory of their own); other ranks stay on meta.
Status LoadOnRank0(Model& model, const KeyMatch& keys, const Source& source, const Job& job,
                   World& world);
/// Every rank gets a full copy.
Status LoadOnEveryRank(Model& model, const KeyMatch& keys, const Source& source, const Job& job,
                       World& world);

/// Rank 0 broadcasts the files bucket by bucket, straight from the mapping; each rank unpacks what it
/// owns. The parts of one bucket take turns, so that unpacking one overlaps the broadcast of the
/// others. Peak staging: job.bucket_bytes on the ranks that receive.
Status FillByBroadcast(Model& model, const KeyMatch& keys, const Source& source,
                       const Stages& stages, const Job& job, World& world);
/// Nothing is left to fill where every rank loaded everything.
Status FillNothing(Model& model, const KeyMatch& keys, const Source& source, const Stages& stages,
                   const Job& job, World& world);

Status InitMissing(Model& model, const KeyMatch& keys, const Job& job, World& world);

/// Gives every non-persistent buffer that has no value yet the one its formula defines.
Status ComputeBuffers(Model& model, const Job& job, World& world);

}  // namespace shardproof
