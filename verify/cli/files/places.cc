#include "verify/cli/files/places.h"

#include <cstdlib>
#include <filesystem>

namespace shardproof {

Places FindPlaces() {
  std::error_code unknown;  // then it is no installed command
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", unknown).parent_path();
  if (folder.filename() != "_bin") {
    return {SHARDPROOF_PYTHON,
            SHARDPROOF_SOURCE "/verify/python/shardproof",
            SHARDPROOF_DIGEST_OP,
            SHARDPROOF_SOURCE "/verify/report",
            SHARDPROOF_SOURCE "/verify/maps/ready",
            SHARDPROOF_SOURCE "/verify/reproduce"};
  }
  const auto package = folder.parent_path();
  const char* python = std::getenv("SHARDPROOF_PYTHON");  // set by shardproof/__main__.py
  return {python != nullptr ? python : "python3",
          package,
          package / "_digest_op.so",
          package / "_report",
          package / "_maps",
          package / "_reproduce"};
}

void FindReadyMaps(std::vector<std::string>& words) {
  for (std::string& word : words) {
    std::error_code ignored;
    const bool plain = word.find_first_of("/>") == std::string::npos;
    if (!plain || std::filesystem::exists(word, ignored)) continue;
    const std::string path = FindPlaces().maps + "/" + word + ".map";
    if (std::filesystem::exists(path, ignored)) word = path;
  }
}

}  // namespace shardproof
