// A function of a user's that returns a model, as options name it.
#pragma once

#include <string>

namespace shardproof {

/// What is wrong with "FILE.py:FUNCTION", for CLI11; empty if it names a file that is there.
std::string IsFactory(const std::string& text);
/// The same with the file's absolute path; an empty text stays so.
std::string AbsoluteFactory(const std::string& text);

}  // namespace shardproof
