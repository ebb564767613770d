// values.json: what of a training state is no tensor, as JSON.
#pragma once

#include <map>
#include <string>

#include "src/core/result.h"
#include "src/storage/file_system.h"

namespace shardproof {

/// The content of values.json. \param values  pickles by key.
/// \error kUnsupported naming the key of what has no form in JSON.
Result<std::string> ValuesText(const std::map<std::string, std::string>& values);

/// Adds the values of the file at `path`, as pickles by key. \error kBadInput naming file and key.
Status ReadValues(FileSystem& files, const std::string& path,
                  std::map<std::string, std::string>& values);

}  // namespace shardproof
