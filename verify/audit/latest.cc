// Which checkpoints a training run has left, newest first.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <tuple>

#include "verify/audit/audit.h"
#include "verify/audit/beside.h"
#include "verify/formats/composite.h"
#include "verify/formats/stored.h"
#include "verify/oracle/listing.h"
#include "verify/oracle/quote.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;

/// What a save in progress, or one that was killed, has.
bool IsDraft(const std::string& name) {
  const size_t last = name.find_last_of("._-");
  for (const char* word : {"saving", "tmp", "writing", "partial", "incomplete"}) {
    if (last != std::string::npos && name.compare(last + 1, std::string::npos, word) == 0)
      return true;
  }
  return name.starts_with('.') || name.starts_with("tmp-") || name.starts_with("tmp_");
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
  SP_TRY(oracle::List(root, [&](const oracle::DirectoryEntry& entry) {
    const std::string& name = entry.name;
    std::error_code ignored;
    const bool is_another_name =
        entry.is_link &&
        fs::equivalent(fs::canonical(entry.path, ignored).parent_path(), root, ignored);
    const bool is_one = entry.is_directory || formats::IsNamedAsWeights(name);
    if (is_another_name || !is_one) return;
    if (IsDraft(name)) {
      if (entry.is_directory && !name.starts_with('.')) list.others.push_back(name);
      return;
    }
    if (entry.is_directory && !formats::IsStepName(name) &&
        !formats::LooksLikeCheckpoint(entry.path)) {
      list.others.push_back(name);
      return;
    }
    candidates.push_back({StepOf(entry.is_directory ? name : fs::path(name).stem().string()),
                          fs::last_write_time(entry.path, ignored), entry.path,
                          entry.is_directory});
  }));
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
