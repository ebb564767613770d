// Where results may be written: never over, into or around what the run reads.
#pragma once

#include <string>

#include "src/core/result.h"

namespace shardproof {

/// For a directory that is to be replaced or filled. \param what the option, for the error.
/// \error kBadInput if it is `input`, lies in it, or contains it.
Status CheckApart(const std::string& output, const std::string& input, const std::string& what);

/// For a file that is to be written. \error kBadInput if it is `input` or a file in it.
Status CheckNotOf(const std::string& output, const std::string& input, const std::string& what);

}  // namespace shardproof
