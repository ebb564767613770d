#include "verify/crash_states/link_target.h"

#include <fmt/format.h>

#include <filesystem>

namespace shardproof::crash {
namespace {

namespace fs = std::filesystem;

bool IsFromRoot(const std::string& told) { return told.starts_with(kFromRoot); }

/// Without what ends in a slash or is a lone dot.
std::string Normal(const fs::path& path) {
  std::string normal = path.lexically_normal().string();
  while (normal.size() > 1 && normal.ends_with('/')) normal.pop_back();
  return normal == "." ? "" : normal;
}

/// Canonical but for the last name, which may be a link itself or not be there yet.
std::string Settled(const std::string& path) {
  std::error_code error;
  const fs::path normal = Normal(path);
  const fs::path parent = fs::weakly_canonical(normal.parent_path(), error);
  return error ? normal.string() : (parent / normal.filename()).string();
}

}  // namespace

Result<std::string> TellTarget(const std::string& root, const std::string& place,
                               const std::string& target) {
  if (!target.starts_with('/')) {
    const std::string path = Normal(fs::path(place) / target);
    if (path != ".." && !path.starts_with("../")) return target;
    return Unsupported(fmt::format(
        "expected a link that stays within {} or is absolute, found one to {}", root, target));
  }
  const std::string settled = Settled(target);
  if (settled == root) return std::string(kFromRoot);
  if (settled.starts_with(root + "/")) return kFromRoot + settled.substr(root.size() + 1);
  return settled;
}

std::string TargetIn(const std::string& place, const std::string& told) {
  if (!IsFromRoot(told)) return told;
  std::string up;
  for (const fs::path& part : fs::path(place)) up += part.empty() ? "" : "../";
  const std::string target = up + PathOfTarget("", told);
  return target.empty() ? "." : target;
}

std::string PathOfTarget(const std::string& place, const std::string& told) {
  if (IsFromRoot(told)) return Normal(told.substr(std::string(kFromRoot).size()));
  return Normal(fs::path(place) / told);
}

std::string Joined(const std::string& place, const std::string& name) {
  return place.empty() ? name : place + "/" + name;
}

std::string TargetText(const std::string& told) {
  return IsFromRoot(told) ? "ROOT/" + PathOfTarget("", told) : told;
}

}  // namespace shardproof::crash
