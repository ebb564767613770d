// Which checkpoints a training run has left, newest first.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <tuple>

#include "verify/audit/audit.h"
#include "verify/audit/beside.h"
#include "verify/formats/composite.h"
#include "verify/formats/stored.h"
#include "verify/oracle/quote.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;

/// What a save in progress, or one that was killed, has.
bool IsDraft(const std::string& name) {
  for (const char* end : {".saving", ".tmp", ".writing", ".partial"}) {
    if (name.ends_with(end)) return true;
  }
  return name.starts_with('.');
}

bool IsCheckpointFile(const std::string& name) {
  return formats::IsNamedAsTorchSave(name) || name.ends_with(".safetensors");
}

}  // namespace

std::optional<Step> StepOf(const std::string& name) {
  std::string digits = formats::NamedStep(name);
  if (digits.empty()) {
    const size_t last = name.find_last_of("0123456789");
    if (last == std::string::npos) return std::nullopt;
    const size_t before = name.find_last_not_of("0123456789", last);
    const size_t first = before == std::string::npos ? 0 : before + 1;
    digits = name.substr(first, last - first + 1);
  }
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
  return Step{digits.size(), digits};
}

Result<CheckpointList> CheckpointsOf(const std::string& root) {
  struct Candidate {
    std::optional<Step> step;
    fs::file_time_type time;
    std::string path;
    bool is_folder = false;
  };
  std::vector<Candidate> candidates;
  CheckpointList list;
  std::error_code error;
  for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    const bool is_directory = it->is_directory(ignored);
    const bool is_another_name =
        it->is_symlink(ignored) &&
        fs::equivalent(fs::canonical(it->path(), ignored).parent_path(), root, ignored);
    if (is_another_name || IsDraft(name) || (!is_directory && !IsCheckpointFile(name))) continue;
    if (is_directory && !formats::IsStepName(name) &&
        !formats::LooksLikeCheckpoint(it->path().string())) {
      list.others.push_back(name);
      continue;
    }
    candidates.push_back({StepOf(is_directory ? name : it->path().stem().string()),
                          it->last_write_time(ignored), it->path().string(), is_directory});
  }
  if (error) {
    return BadInput(
        fmt::format("{}: cannot be listed: {}", oracle::Printable(root), error.message()));
  }
  // A job's state beside the folders of its steps is none of them.
  const auto is_folder = [](const Candidate& one) { return one.is_folder; };
  if (std::any_of(candidates.begin(), candidates.end(), is_folder)) {
    std::erase_if(candidates, [](const Candidate& one) {
      return !one.is_folder && IsResumedFrom(fs::path(one.path).filename().string());
    });
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(b.step, b.time, a.path) < std::tie(a.step, a.time, b.path);
  });
  for (Candidate& candidate : candidates) list.paths.push_back(std::move(candidate.path));
  std::sort(list.others.begin(), list.others.end());
  return list;
}

}  // namespace shardproof
