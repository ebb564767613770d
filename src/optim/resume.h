// A training job begins, or goes on from what it saved.
#pragma once

#include "src/contract/stages.h"
#include "src/optim/optimizer.h"

namespace shardproof {

/// Makes the optimizer, if the model has none yet, and the random number generator; and if `source`
/// holds a training job's state, takes it: step, groups with their options, state by parameter
/// name, and the generators of the ranks that there were.
/// \error kBadInput naming the tensor or key: a dtype or shape other than this job's, state that is
///   incomplete, a parameter that the model has not.
Status StartTraining(Model& model, const Source& source, const Stages& stages, const Job& job,
                     World& world);

}  // namespace shardproof
