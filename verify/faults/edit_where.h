// Where a source is damaged, as EDIT:N says it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/core/result.h"

namespace shardproof {

struct EditAndNumber {
  std::string edit;
  uint64_t n = 0;
};

/// \param known  names of what can be done.
/// \error kBadInput if it is none of them, or no number follows.
Result<EditAndNumber> ParseEdit(const std::string& where, const std::vector<std::string>& known);

}  // namespace shardproof
