// What a training job has left on disk, read by the verifier's own reader of such checkpoints.
#pragma once

#include <string>
#include <vector>

#include "verify/case/case.h"
#include "verify/evidence/evidence.h"

namespace shardproof {

/// Every tensor of the checkpoint at `directory`, of any format that is known, under its key in it:
/// "optimizer.state.<FQN>.exp_avg"; of what is kept in parts, as `declared` says, under the key
/// that it would have as a whole. What cannot be read is the record's `error`.
CheckpointRecord ReadSavedState(const std::string& directory,
                                const std::vector<TensorCase>& declared);

/// What is below the root that a training job has saved its steps in, each audited and held against
/// its own manifest. \param was_empty  whether the root was before the job began
SavedRoot ReadSavedRoot(const std::string& root, bool was_empty);

}  // namespace shardproof
