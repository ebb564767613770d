// Whether a checkpoint has the names, shapes and dtypes of another one; values are not looked at.
#pragma once

#include <string>
#include <vector>

#include "src/core/result.h"

namespace shardproof {

/// A line for each tensor of `path` that the reference does not have, or that it has otherwise, and
/// for each of the reference that is not there. \param maps  from the reference's names to those of
/// `path`, as of Compare. \error kBadInput: a checkpoint or a map that cannot be read, a map that
/// does not fit.
Result<std::vector<std::string>> UnlikeLines(const std::string& reference, const std::string& path,
                                             const std::vector<std::string>& maps);

}  // namespace shardproof
