// What a rank says when it refuses a checkpoint, held against what the verifier's own reader has
// found there.
#pragma once

#include <string>

#include "verify/evidence/evidence.h"
#include "verify/verdict/property.h"

namespace shardproof {

/// Whether what ranks refuse is judged: it is the reference's, and no fault struck in the run. If
/// not, the judgement is skipped with the reason.
bool RefusalsToJudge(const Evidence& evidence, Judgement& judgement);

/// What a refusal says, without the rank that it says has found it.
std::string WithoutFinder(const std::string& message);

/// The tensor that a refusal names first, in quotes, by its own name or by one of its keys; empty
/// if it names none that is there.
std::string TensorNamedIn(const CheckpointRecord& record, const std::string& message);

/// The file that a refusal names, of those that hold tensors, and config.json and the index beside
/// them; likewise.
std::string FileNamedIn(const CheckpointRecord& record, const std::string& message);

/// "the verifier's own reader finds F32 [5, 3] there"; of the checkpoint, if `tensor` is empty.
std::string FoundThere(const CheckpointRecord& record, const std::string& tensor);

}  // namespace shardproof
