// Names of system calls that have to do with files and processes.
#pragma once

#include <string>

namespace shardproof::trace {

/// "write"; "call 999" of one that is not known here.
std::string NameOf(long call);

}  // namespace shardproof::trace
