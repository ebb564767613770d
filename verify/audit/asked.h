// Questions to other libraries, each answered by a script of the package in a process of its own.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace shardproof {

/// What the last line of the script's output says: an object that has one of these keys, or "error"
/// with the reason why there is no answer. \param words  the interpreter, the script, its arguments
nlohmann::json Asked(const std::vector<std::string>& words, const std::vector<std::string>& keys);

}  // namespace shardproof
