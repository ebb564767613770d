// What is done to a DCP checkpoint, so that no reader may take it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/case/case.h"

namespace shardproof::dcp_forms {

/// Names of what can be done, in an order that stays as it is.
std::vector<std::string> DamageNames();

/// What it does to a file, in words that follow its name; {}: "tensor 'w'" or "it".
std::string DamageInWords(const std::string& name);

struct Damaged {
  std::map<std::string, std::string> files;  ///< all, by name
  std::string file;                          ///< the one that is damaged
  std::string key;                           ///< the tensor whose part of it is
};

/// The checkpoint of a Case (dcp_forms.h) with one of these done to the n-th tensor that has bytes,
/// by their keys, wrapping around; `n` also says to which chunk of it, and how.
/// \error kBadInput: the name is not known, or there is no byte.
Result<Damaged> Damage(const Case& test_case, const std::string& name, uint64_t n);

}  // namespace shardproof::dcp_forms
