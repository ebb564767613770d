// Parts of the command that are modules of the Python package.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "verify/cli/common/app.h"
#include "verify/cli/common/places.h"

namespace shardproof {

int BecomePython(const std::string& module, const std::vector<std::string>& words) {
  const Places places = FindPlaces();
  std::error_code ignored;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const char* path = std::getenv("PATH");
  // So that the package finds this command, and Python the package.
  ::setenv("PATH", (self.parent_path().string() + ":" + (path != nullptr ? path : "")).c_str(), 1);
  const auto packages = std::filesystem::path(places.package).parent_path().string();
  const std::string code =
      "import sys; sys.path.insert(0, sys.argv.pop(1)); from shardproof import " + module +
      "; sys.exit(" + module + ".main(sys.argv[1:]))";
  std::vector<std::string> command = {places.python, "-c", code, packages};
  command.insert(command.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::setenv("SHARDPROOF_PYTHON", places.python.c_str(), 1);
  ::execvp(argv[0], argv.data());
  std::fprintf(stderr, "shardproof: %s: cannot be run: %s\n", argv[0], std::strerror(errno));
  return kExitBroken;
}

}  // namespace shardproof
