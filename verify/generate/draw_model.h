// The model of a case.
#pragma once

#include "verify/case/case.h"
#include "verify/generate/generate.h"

namespace shardproof::draw {

/// Of modules of every kind that models have; only within CaseOf.
ModelCase Model(const GenerateOptions& options);

}  // namespace shardproof::draw
