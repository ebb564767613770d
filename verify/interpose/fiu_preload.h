// libfiu's preload libraries, as Debian's libfiu0 installs them.
#pragma once

#include <string>
#include <vector>

#include "src/core/result.h"

namespace shardproof::interpose {

struct FiuPreload {
  std::string run;    ///< fiu_run_preload.so: reads FIU_ENABLE
  std::string posix;  ///< fiu_posix_preload.so: the points
};

/// \error kUnsupported  if they are in none of the folders; names the package
Result<FiuPreload> FindFiuPreload(const std::vector<std::string>& folders);

/// libfiu takes any name for a point, and one that there is not never fires.
/// \error kBadInput  if the library has no such point
Status CheckPoint(const FiuPreload& preload, const std::string& point);

}  // namespace shardproof::interpose
