// Where the command finds what it runs besides itself.
#pragma once

#include <string>

namespace shardproof {

struct Places {
  std::string python;     ///< interpreter with torch, and with what html.py imports
  std::string package;    ///< folder of the Python package `shardproof`
  std::string digest_op;  ///< the built torch.ops.shardproof.digest
  std::string report;     ///< folder of html.py and reproducer.py, with what they need
  std::string source;     ///< checkout that this was built from; empty: installed, without it
  std::string build;      ///< the tree that it was built in; likewise
};

/// Installed, all of it lies in the Python package, as verify/python/CMakeLists.txt puts it there;
/// before that, where the build left it.
Places FindPlaces();

}  // namespace shardproof
