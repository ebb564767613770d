// The reference pipeline as a subject: a Case becomes its Job.
#pragma once

#include "src/contract/job.h"
#include "verify/case/case.h"
#include "verify/plan/plan.h"

namespace shardproof {

/// \param source   directory to load; \param save_to directory to save to.
/// \error kBadInput for a dtype that LibTorch does not store.
Result<Job> JobFromCase(const Case& test_case, const PhasePlan& phase, const std::string& source,
                        const std::string& save_to);

}  // namespace shardproof
