// Why numbers of a quantised weight are not those that are expected.
#pragma once

#include <string>

#include "verify/compare/number_pair.h"
#include "verify/maps/apply.h"

namespace shardproof::compare {

/// The mistake of a converter that makes the elements that are wrong right: parts of a unit that
/// were taken for something else, rows in another order, another tensor's weights; or empty. Where
/// none is beyond its bound, one that makes all elements the same on both sides.
/// \error kBadInput if a file ends early.
Result<std::string> Explain(const Inputs& inputs, const maps::Held& held, const NumberPair& pair);

}  // namespace shardproof::compare
