// Names of system calls that have to do with files and processes.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace shardproof::trace {

/// "write"; "call 999" of one that is not known here.
std::string NameOf(long call);
/// Nothing if it is not known here.
std::optional<long> NumberOf(const std::string& name);
/// All that are known here, sorted.
std::vector<std::string> KnownCalls();

}  // namespace shardproof::trace
