#include "verify/cli/files/places.h"

#include <cstdlib>
#include <filesystem>

namespace shardproof {

Places FindPlaces() {
  std::error_code unknown;  // then it is no installed command
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", unknown).parent_path();
  if (folder.filename() != "_bin") {
    return {SHARDPROOF_PYTHON, SHARDPROOF_SOURCE "/verify/python/shardproof", SHARDPROOF_DIGEST_OP,
            SHARDPROOF_SOURCE "/verify/report", SHARDPROOF_SOURCE "/verify/reproduce"};
  }
  const auto package = folder.parent_path();
  const char* python = std::getenv("SHARDPROOF_PYTHON");  // set by shardproof/__main__.py
  return {python != nullptr ? python : "python3", package, package / "_digest_op.so",
          package / "_report", package / "_reproduce"};
}

}  // namespace shardproof
