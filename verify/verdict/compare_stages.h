// One stage of a job against another, tensor by tensor.
#pragma once

#include <string>
#include <vector>

#include "verify/verdict/locate.h"
#include "verify/verdict/select.h"

namespace shardproof {

/// Every tensor at the stage `key` of `phase` against what it is at `expected_key` of `reference`:
/// the findings. What `reference` lacks is not asked for.
std::vector<Finding> CompareStages(const Evidence& evidence, const PhaseEvidence& reference,
                                   const std::string& expected_key, const PhaseEvidence& phase,
                                   const std::string& key, Judgement& judgement);

}  // namespace shardproof
