// Which checkpoints a training run has left, newest first.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <tuple>

#include "verify/audit/audit.h"
#include "verify/oracle/quote.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;

/// The number that a name ends with, leaving off what a file's kind is called: "step-100",
/// "iter_0000100", "global_step100.pt". None if there is none or it does not fit.
std::optional<uint64_t> StepOf(const std::string& name) {
  const size_t last = name.find_last_of("0123456789");
  if (last == std::string::npos) return std::nullopt;
  const size_t before = name.find_last_not_of("0123456789", last);
  const size_t first = before == std::string::npos ? 0 : before + 1;
  if (last - first >= 18) return std::nullopt;
  return std::stoull(name.substr(first, last - first + 1));
}

/// What a save in progress, or one that was killed, has.
bool IsDraft(const std::string& name) {
  for (const char* end : {".saving", ".tmp", ".writing", ".partial"}) {
    if (name.ends_with(end)) return true;
  }
  return name.starts_with('.');
}

bool IsCheckpointFile(const fs::path& path) {
  for (const char* kind : {".pt", ".pth", ".bin", ".ckpt", ".safetensors"}) {
    if (path.extension() == kind) return true;
  }
  return false;
}

}  // namespace

Result<std::vector<std::string>> CheckpointsOf(const std::string& root) {
  struct Candidate {
    std::optional<uint64_t> step;
    fs::file_time_type time;
    std::string path;
  };
  std::vector<Candidate> candidates;
  std::error_code error;
  for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    const bool is_directory = it->is_directory(ignored);
    // A link (`latest`) is another name of what is here anyway.
    if (it->is_symlink(ignored) || IsDraft(name) ||
        (!is_directory && !IsCheckpointFile(it->path())))
      continue;
    candidates.push_back(
        {StepOf(it->path().stem().string()), it->last_write_time(ignored), it->path().string()});
  }
  if (error) {
    return BadInput(
        fmt::format("{}: cannot be listed: {}", oracle::Printable(root), error.message()));
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(b.step, b.time, a.path) < std::tie(a.step, a.time, b.path);
  });
  std::vector<std::string> paths;
  for (Candidate& candidate : candidates) paths.push_back(std::move(candidate.path));
  return paths;
}

}  // namespace shardproof
