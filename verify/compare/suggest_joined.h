// Tensors that are one on the other side: experts stacked, projections fused.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/compare/checkpoint.h"

namespace shardproof::compare {

/// A tensor of one side that is several of the other, as a rule has them.
struct JoinedSuggestion {
  std::vector<std::string> parts;  ///< names, the numbers of what is gathered as {e}
  std::string whole;
  std::string form;  ///< "stack({})", "interleave({}, groups=2)"
  bool parts_of_a = true;
};

/// What is found among these names by shapes and values, with the names that it takes removed.
/// \error kBadInput on a short read.
Result<std::vector<JoinedSuggestion>> SuggestJoined(const Inputs& inputs,
                                                    std::set<std::string>& names_a,
                                                    std::set<std::string>& names_b);

}  // namespace shardproof::compare
