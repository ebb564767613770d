// What a synthetic model's checkpoint holds, whatever form its files have.
#pragma once

#include <vector>

#include "verify/case/case.h"
#include "verify/oracle/safetensors_writer.h"

namespace shardproof::oracle {

/// Every tensor that is to be written, widest elements first.
/// \error kBadInput if the Case's tensors make none.
Result<std::vector<PlannedTensor>> PlanSynthetic(const Case& test_case);

}  // namespace shardproof::oracle
