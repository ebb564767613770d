// The model that a text describes, of a config.json that may lie nowhere.
#pragma once

#include <string>

#include "verify/oracle/oracle.h"

namespace shardproof::oracle {

/// What DeclareModel makes of a Case whose checkpoint has this text for a config.json.
/// \param path  names it in errors.
/// \error kBadInput where it describes no model that is known, in one line.
Result<DeclaredModel> DeclareConfig(const Case& test_case, const std::string& text,
                                    const std::string& path);

}  // namespace shardproof::oracle
