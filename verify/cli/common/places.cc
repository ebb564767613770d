#include "verify/cli/common/places.h"

#include <cstdlib>
#include <filesystem>

namespace shardproof {

namespace {

/// Where this program lies; empty if that is not known.
std::filesystem::path Folder() {
  std::error_code unknown;
  return std::filesystem::read_symlink("/proc/self/exe", unknown).parent_path();
}

/// Of shardproof/__main__.py; empty if another command was started.
std::string Told(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool IsInstalled(const std::filesystem::path& folder) { return folder.filename() == "_bin"; }

}  // namespace

Places FindPlaces() {
  const auto folder = Folder();
  if (!IsInstalled(folder)) {
    return {SHARDPROOF_PYTHON,
            SHARDPROOF_SOURCE "/verify/python/shardproof",
            SHARDPROOF_DIGEST_OP,
            SHARDPROOF_SOURCE "/verify/report",
            SHARDPROOF_SOURCE "/verify/maps/ready",
            SHARDPROOF_SOURCE "/verify/reproduce"};
  }
  std::filesystem::path package = Told("SHARDPROOF_PACKAGE");
  if (package.empty()) package = folder.parent_path().parent_path() / "shardproof";
  const std::string python = Told("SHARDPROOF_PYTHON");
  return {!python.empty() ? python : "python3",
          package,
          package / "_digest_op.so",
          package / "_report",
          package / "_maps",
          package / "_reproduce"};
}

std::string FindEngine() {
  constexpr const char* kName = "shardproof-engine";
  const auto folder = Folder();
  if (!IsInstalled(folder)) return folder / kName;
  std::string told = Told("SHARDPROOF_ENGINE");
  if (!told.empty() || !Told("SHARDPROOF_NO_ENGINE").empty()) return told;
  const auto beside =
      folder.parent_path().parent_path() / "shardproof_engine" / folder.filename() / kName;
  std::error_code ignored;
  return std::filesystem::exists(beside, ignored) ? beside.string() : "";
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
