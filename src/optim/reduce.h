// Data parallelism: ranks share the micro-batches of a step, and add up what they have computed.
//
// The ranks at the coordinates of the axes "dp_shard" and "dp_replicate" take turns: of a batch of
// n samples the i-th is that of data-parallel rank i mod D, of D in row-major order. A rank
// computes gradients of whole parameters, whose values it gathers before. They travel in the dtype
// of the job, and are added up in two phases: first along "dp_shard", each rank for the part that
// it has of the parameter; then the sums along "dp_replicate".
//
// A sum must not depend on who adds what to what. So the gradient of a sample is cut, toward zero,
// to a multiple of
//   2^(e - b), with e the least integer for which n * 3/16 < 2^e, and b = 24 for F32, 8 for BF16
// (no gradient is larger than 3/16, see gradient.h): every sum of a step then has b bits at most,
// and none is rounded. The sum of all is multiplied by F32 1/n.
#pragma once

#include "src/contract/stages.h"
#include "src/optim/batch.h"

namespace shardproof {

/// Which of a batch's samples a rank computes gradients of.
std::vector<int64_t> SamplesOf(const Batch& batch, const Mesh& mesh, int64_t rank);

/// The ranks that differ from `rank` in the coordinate of this axis alone, itself among them,
/// ascending; only itself, if the mesh has no such axis.
std::vector<int64_t> RanksAlong(const Mesh& mesh, const std::string& axis, int64_t rank);

/// Puts the gradients of a step into the optimizer's memory, as AccumulateGradients does where no
/// sample is shared. Some parameters at a time: while their gradients are computed, the values of
/// the next ones and the gradients of those before are on their way. Collective.
/// \error as Device::Allocate, on every rank.
Status ReduceGradients(Model& model, const Batch& batch, const Stages& stages, const Job& job,
                       World& world);

}  // namespace shardproof
