#include "verify/interpose/fiu_preload.h"

#include <unistd.h>

#include <fstream>
#include <iterator>

#include "verify/interpose/rule_words.h"

namespace shardproof::interpose {

Result<FiuPreload> FindFiuPreload(const std::vector<std::string>& folders) {
  std::string places;
  for (const std::string& folder : folders) {
    FiuPreload found{folder + "/fiu_run_preload.so", folder + "/fiu_posix_preload.so"};
    if (::access(found.run.c_str(), R_OK) == 0 && ::access(found.posix.c_str(), R_OK) == 0) {
      return found;
    }
    places += (places.empty() ? "" : " or ") + folder;
  }
  return Unsupported(
      "libfiu's preload is not installed: expected fiu_run_preload.so and fiu_posix_preload.so "
      "in " +
      places + " (Debian package libfiu0)");
}

Status CheckPoint(const FiuPreload& preload, const std::string& point) {
  std::ifstream file(preload.posix, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::string whole(1, '\0');
  whole += point;
  whole += '\0';
  if (bytes.find(whole) != bytes.npos) return Ok();
  return BadInput(preload.posix + " has no point " + Shown(point) +
                  ": expected one such as posix/io/rw/write (verify/interpose/README.md)");
}

}  // namespace shardproof::interpose
