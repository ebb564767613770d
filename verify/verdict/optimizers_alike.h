// Whether the ranks that hold a parameter together step it alike.
#pragma once

#include <set>
#include <string>

#include "verify/verdict/select.h"

namespace shardproof {

/// Of which optimizer a group is: empty for the first of a job, "2 of 2, SGD" for further ones.
std::string OptimizerOf(const OptimizerGroup& group);

/// The names of all parameters that an optimizer holds.
std::set<std::string> HeldBy(const OptimizerRecord& optimizer);

/// At a stage of an optimizer: the numbers among a parameter's options (its rate, weight decay,
/// betas, ...) and among its state that is no tensor, and how many steps the optimizer has taken,
/// are the same on all ranks that hold the parameter together and step it. A rank whose optimizer
/// leaves it to others says nothing of it.
void CheckOptimizers(const PhaseEvidence& phase, const std::string& stage, FindingsByRank& findings,
                     Judgement& judgement);

/// Whatever state one of the ranks that hold a parameter together has of it, the others have too. A
/// rank that holds no element needs none; and where optimizers divide the parameters among the
/// ranks, a rank has state of those that it steps.
void CheckStateThere(const PhaseEvidence& phase, const std::string& stage, FindingsByRank& findings,
                     Judgement& judgement);

}  // namespace shardproof
