#pragma once

#include "verify/audit/audit.h"
#include "verify/formats/stored.h"

namespace shardproof {

/// Files, tensors and values of a checkpoint as a result has them, nothing of them read yet.
void Describe(const formats::StoredCheckpoint& checkpoint, AuditResult& result);

/// Of the bytes of a text.
Digest DigestOf(const std::string& text);

/// Reads every byte of the checkpoint's files and adds the sums to `result`, whose tensors and
/// files are those of `checkpoint`, in its order. What cannot be read, and entries of archives that
/// are not those of their CRC-32, are damage.
void ReadAll(const formats::StoredCheckpoint& checkpoint, AuditSums sums, AuditResult& result);

}  // namespace shardproof
