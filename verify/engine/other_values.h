// A checkpoint like another in all but its values, for ranks that are said not to read it.
#pragma once

#include <string>

#include "src/core/result.h"

namespace shardproof {

/// Makes `target` (a file if `source` is one, else a directory) like the checkpoint `source`: the
/// same names, headers and sizes, and kOthersByte in every byte of data of safetensors files. What
/// else lies there is linked.
/// \error kBadInput if `source` cannot be read or `target` not be written.
Status WriteOtherValues(const std::string& source, const std::string& target);

}  // namespace shardproof
