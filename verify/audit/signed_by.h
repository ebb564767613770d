// The signature of a seal, as OpenSSF Model Signing makes it.
#pragma once

#include <string>

#include "verify/audit/audit.h"

namespace shardproof {

/// Adds to the damage that the seal which `result` was held against has not the signature of this
/// public key in SEAL.sig, or has none; to what is not judged that nothing can tell.
/// \param python  that has model-signing. \param package  the folder of the scripts.
/// \error kBadInput: it was held against no seal.
Status HoldSignature(const std::string& python, const std::string& package, const std::string& key,
                     AuditResult& result);

}  // namespace shardproof
