// shardproof bisect, and shardproof verify --base --head: one subject on several releases of a
// framework. Python makes the environments, and calls this command once for each.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "verify/cli/files/files.h"
#include "verify/cli/files/places.h"

namespace shardproof {
namespace {

bool StartsWith(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

}  // namespace

bool IsOfVersions(const std::vector<std::string>& command_line) {
  if (command_line.size() < 2) return false;
  if (command_line[1] == "bisect") return true;
  if (command_line[1] != "verify") return false;
  for (const std::string& word : command_line) {
    if (word == "--") break;
    for (const char* option : {"--base", "--head"}) {
      if (word == option || StartsWith(word, std::string(option) + "=")) return true;
    }
  }
  return false;
}

int RunVersions(const std::vector<std::string>& command_line) {
  const Places places = FindPlaces();
  std::error_code ignored;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const char* path = std::getenv("PATH");
  // So that the package finds this command, and Python the package.
  ::setenv("PATH", (self.parent_path().string() + ":" + (path != nullptr ? path : "")).c_str(), 1);
  const auto packages = std::filesystem::path(places.package).parent_path().string();
  std::vector<std::string> words = {places.python, "-c",
                                    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
                                    "from shardproof import versions; "
                                    "sys.exit(versions.main(sys.argv[1:]))",
                                    packages};
  words.insert(words.end(), command_line.begin() + 1, command_line.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::setenv("SHARDPROOF_PYTHON", places.python.c_str(), 1);
  ::execvp(argv[0], argv.data());
  std::fprintf(stderr, "shardproof: %s: cannot be run: %s\n", argv[0], std::strerror(errno));
  return kExitBroken;
}

}  // namespace shardproof
