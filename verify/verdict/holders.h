// Whose tensors are held against whose: a name may stand for one tensor of all ranks, for one of
// some, or for several that have nothing to do with each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verify/evidence/evidence.h"
#include "verify/verdict/image.h"

namespace shardproof {

/// The ranks that hold a tensor at a stage.
struct Holders {
  /// Each a tensor of its own: ranks that hold it, in their order.
  std::vector<std::vector<int64_t>> tensors;
  std::vector<int64_t> unstated;  ///< nobody said with which others these hold it
  std::vector<int64_t> expected;  ///< sorted; those that should hold it, if not all
  bool everywhere = false;        ///< all ranks should

  bool Expects(int64_t rank) const;
};

Holders HoldersOf(const PhaseEvidence& phase, const StageKey& stage, const std::string& tensor);

/// Those of the images that are replicas of one tensor.
/// \param holders  its ranks, ascending, as Holders has them
std::vector<Image> ReplicasOf(const std::vector<int64_t>& holders,
                              const std::vector<Image>& images);

/// Whether a tensor is held in parts, as the job told, that are not of one size along the one dim
/// that is cut: where each begins follows from the sizes of all of them.
bool AreUnevenParts(const PhaseEvidence& phase, const StageKey& stage, const std::string& tensor,
                    const std::vector<int64_t>& holders);

/// The mesh that a tensor lies on, with the rank's coordinates.
struct MeshOfTensor {
  const std::vector<AxisCase>& axes;
  const std::vector<int64_t>& coordinates;
};

MeshOfTensor MeshOf(const PhaseEvidence& phase, const RankEvidence& rank,
                    const TensorDescriptor& descriptor);

}  // namespace shardproof
