// Where the command finds what it runs besides itself.
#pragma once

#include <string>
#include <vector>

namespace shardproof {

struct Places {
  std::string python;     ///< interpreter with torch, and with what report_html.py imports
  std::string package;    ///< folder of the Python package `shardproof`
  std::string digest_op;  ///< the built torch.ops.shardproof.digest
  std::string report;     ///< folder of report_html.py, with what it needs
  std::string maps;       ///< folder of the ready maps
  std::string reproduce;  ///< folder of subject.py and reference.py, likewise
};

/// Installed, all of it lies in the Python package, as verify/python/CMakeLists.txt puts it there;
/// before that, where the build left it.
Places FindPlaces();

/// The program that is linked to LibTorch; empty where the installed command has none to run.
std::string FindEngine();

/// Words of --map that are names of ready maps become their files; a file of that name is first.
void FindReadyMaps(std::vector<std::string>& words);

}  // namespace shardproof
