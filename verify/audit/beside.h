// What a training job saves beside its model: optimizer.pt, scheduler.pt, rng_state_0.pth,
// common.pt.
#pragma once

#include "verify/audit/audit.h"
#include "verify/formats/beside.h"

namespace shardproof {

/// Reads those files that torch.save or safetensors wrote, and those folders that hold a checkpoint
/// of a kind that is known, into `result.beside`, and adds what is wrong with them to the damage.
/// What is of an unknown kind goes to `result.unread`, unless its name says that a job resumes from
/// it: then it is damaged. Other checkpoints are remarked.
void ReadBeside(const formats::Beside& beside, AuditSums sums, AuditResult& result);

/// Whether a job resumes from a file of this name: optimizer, scheduler, random state, counters.
bool IsResumedFrom(const std::string& name);

}  // namespace shardproof
