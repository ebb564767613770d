// The known name that a mistyped one most likely means.
#pragma once

#include <string>
#include <vector>

namespace shardproof::text {

/// The name that needs the fewest changed characters, fewer than half of `name`'s; empty if there
/// is none, or `name` is longer than 1,000 bytes.
std::string Nearest(const std::string& name, const std::vector<std::string>& known);

}  // namespace shardproof::text
