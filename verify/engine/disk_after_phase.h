// What lies where a phase saves, before it and after.
#pragma once

#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/evidence/evidence.h"

namespace shardproof {

/// Of what is in a directory, sorted; none if there is no such directory.
std::vector<std::string> NamesIn(const std::string& directory);

/// Puts a checkpoint of another model where a job saves, and beside it what is there of one whose
/// save was killed: `<directory>.saving`.
Status LeaveAsAnEarlierJob(const std::string& directory);

/// The same of a training job's root: the step that this one saves first is there, whole, and half
/// of it once more, and a part of the file that names it.
Status LeaveStepsAsAnEarlierJob(const std::string& root, int64_t step);

/// By the verifier's own audit, against their seals, and what an earlier job left against what it
/// was. \param trains  whether it is the root of a job's steps, and not one checkpoint
LeftRecord InspectLeft(const std::string& directory, bool trains, bool had_previous);

/// The same of what a subject has saved, in whatever format: one checkpoint, without a manifest.
/// Where its save may have been cut short, what `audit` cannot read is none, since nobody would
/// load it.
LeftRecord InspectLeftBySubject(const std::string& directory, bool may_be_cut_short);

}  // namespace shardproof
