// The leaves that bring values into a model; contract/stages.h says what each is for.
#pragma once

#include "src/contract/stages.h"
#include "src/format/safetensors.h"
#include "src/load/key_match.h"

namespace shardproof {

/// Into how many parts a bucket is cut. While one is unpacked the others travel, so a rank that is
/// scheduled late holds nobody up. ConnectGloo has a thread for each.
inline constexpr size_t kParts = 4;

Result<Source> OpenSourceOnRank0(const Job& job, World& world);
Result<Source> OpenSourceOnEveryRank(const Job& job, World& world);

/// Where the source is mapped, slots become views of it (no memory of their own); what many keys
/// make together has no view and stays on meta, as everything does on ranks that do not read.
Status LoadViews(Model& model, const KeyMatch& keys, const Source& source, const Job& job,
                 World& world);
/// Every rank gets a full copy.
Status LoadCopies(Model& model, const KeyMatch& keys, const Source& source, const Job& job,
                  World& world);

/// Rank 0 broadcasts the files bucket by bucket, straight from the mapping; each rank unpacks what
/// it owns. The parts of one bucket take turns, so that unpacking one overlaps the broadcast of the
/// others. Peak staging: job.bucket_bytes on the ranks that receive.
Status FillByBroadcast(Model& model, KeyMatch& keys, const Source& source, const Stages& stages,
                       const Job& job, World& world);
/// Rank 0 sends every rank what it owns, parcel by parcel, straight from the mapping where that is
/// one stretch of it; ranks receive in place where a parcel is one stretch of a shard. Peak
/// staging: job.bucket_bytes.
Status FillByScatter(Model& model, KeyMatch& keys, const Source& source, const Stages& stages,
                     const Job& job, World& world);
/// Every rank copies what it owns out of its own mapping, and takes its digests if a manifest says
/// what they are to be. No staging, no collective.
Status FillFromSource(Model& model, KeyMatch& keys, const Source& source, const Stages& stages,
                      const Job& job, World& world);
/// Nothing is left to fill where every rank loaded everything.
Status FillNothing(Model& model, KeyMatch& keys, const Source& source, const Stages& stages,
                   const Job& job, World& world);

/// Commits a tensor's pages in one go: the copy would otherwise fault on one after the other. (Huge
/// pages would be fewer, but where the kernel has to fetch them from a hypervisor they cost more.)
void CommitPages(const at::Tensor& tensor);

Status InitMissing(Model& model, const KeyMatch& keys, const Job& job, World& world);

/// Gives every non-persistent buffer that has no value yet the one its formula defines.
Status ComputeBuffers(Model& model, const Job& job, World& world);

}  // namespace shardproof
