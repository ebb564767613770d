// Buffers that a formula defines: the inverse frequencies of rotary position embeddings.
#pragma once

#include <cstdint>

#include "src/core/result.h"
#include "verify/case/case.h"
#include "verify/evidence/evidence.h"

namespace shardproof::oracle {

/// The `count` inverse frequencies that `rope` defines, with how far another correct F32 evaluation
/// may be from them (derived.cc says how the bound is derived), and the formula for people.
/// \error kBadInput, one line: a kind that is not known, fields that do not fit the count or each
///   other, frequencies that F32 cannot hold.
Result<DerivedExpectation> DeriveFrequencies(const RopeCase& rope, int64_t count);

}  // namespace shardproof::oracle
