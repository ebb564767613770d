// shardproof bisect, and shardproof verify --base --head: one subject on several releases of a
// framework. Python makes the environments, and calls this command once for each.
#include <string_view>

#include "verify/cli/common/app.h"
#include "verify/cli/files/files.h"

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
  return BecomePython("versions", {command_line.begin() + 1, command_line.end()});
}

}  // namespace shardproof
