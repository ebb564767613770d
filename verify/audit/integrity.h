// integrity.json, as Megatron-LM writes it beside a checkpoint with --verify-integrity: the SHA-256
// of every file in the directory.
#pragma once

#include <string>

#include "verify/audit/audit.h"

namespace shardproof {

/// Adds to the damage what the directory's integrity.json says and is not so: a file that is
/// missing or has another SHA-256, and one of the checkpoint that is not listed. Does nothing where
/// there is none.
void HoldIntegrity(AuditResult& result);

/// Writes one for the directory. \error kBadInput: `directory` is none, or cannot be read or
/// written.
Status WriteIntegrity(const std::string& directory);

}  // namespace shardproof
