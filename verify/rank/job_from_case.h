// The reference pipeline as a subject: a Case becomes its Job.
#pragma once

#include "src/contract/job.h"
#include "verify/case/case.h"
#include "verify/plan/plan.h"

namespace shardproof {

/// Copies what rows of the tables of fields say is copied as it is; all else of a job takes more.
void CopyFields(const Case& test_case, Job& job);

/// \param source   directory to load; \param save_to directory to save to.
/// \error kBadInput for a dtype that LibTorch does not store.
Result<Job> JobFromCase(const Case& test_case, const PhasePlan& phase, const std::string& source,
                        const std::string& save_to);

}  // namespace shardproof
