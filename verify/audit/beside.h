// What a training job saves beside its model: optimizer.pt, scheduler.pt, rng_state_0.pth,
// common.pt.
#pragma once

#include "verify/audit/audit.h"

namespace shardproof {

/// Reads those files of `result.unread` that torch.save or safetensors wrote, moves them to
/// `result.beside`, and adds what is wrong with them to the damage. A file of an unknown kind stays
/// unread, unless its name says that a job resumes from it: then it is damaged.
void ReadBeside(AuditSums sums, AuditResult& result);

/// Whether a job resumes from a file of this name: optimizer, scheduler, random state, counters.
bool IsResumedFrom(const std::string& name);

}  // namespace shardproof
