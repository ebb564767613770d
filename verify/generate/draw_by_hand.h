// Draws of fields that take more than a row of the table can say.
#pragma once

#include <map>
#include <string>

#include "verify/generate/generate.h"

namespace shardproof::draw {

/// Draws one field of a case of which the fields before it in the table are drawn.
using DrawByHand = void (*)(Case& made, const GenerateOptions& options);

/// For each row that says kByHand, by its path.
const std::map<std::string, DrawByHand>& DrawnByHand();

}  // namespace shardproof::draw
