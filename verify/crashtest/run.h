// Runs somebody else's save, and loads from every state that a crash of it may leave.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/crash_states/judge.h"
#include "verify/crash_states/operation.h"
#include "verify/crash_states/states.h"
#include "verify/crashtest/loader.h"

namespace shardproof::crashtest {

struct Options {
  std::vector<std::string> command;     ///< the save, and its arguments
  std::vector<std::string> before;      ///< run before it, untraced; empty: nothing
  std::string root;                     ///< the directory that is looked at
  std::string kind;                     ///< "dcp", "torch", "safetensors"; empty: what is there
  std::vector<std::string> loader;      ///< a command that loads; empty: the kinds above
  std::optional<std::string> path;      ///< below root: what is saved; nothing: what has changed
  std::optional<std::string> old_path;  ///< below root: the previous one; nothing: found likewise
  crash::StateOptions states;
  /// So many states that differ are aimed at, by how many crash points are looked at; 0: all points
  /// that `states` says.
  int64_t states_max = 0;
  std::chrono::milliseconds deadline{60000};  ///< of a load
  std::chrono::milliseconds save_deadline{600000};
  int64_t bytes_max = int64_t{1} << 30;  ///< that `root` holds, and that the save writes
  int64_t scripts_max = 20;              ///< bad states that are written down
  std::string python;
  std::string package;  ///< folder of the Python package `shardproof`
};

/// Bad states that one cause explains: what they lack, or what was being done, concerns the same
/// path; what comes of them is alike; and so is the weakest model that leaves them.
struct BadGroup {
  crash::CrashModel model = crash::CrashModel::kKill;
  std::string what;             ///< "lost", "wrong", "died", "not durable"
  std::string cause;            ///< "without the bytes of ckpt.pt", "from the rename of a to b on"
  std::string line;             ///< what was loaded of the smallest, in words
  std::vector<size_t> members;  ///< indices of CrashReport::bad, the smallest state first
};

struct ModelCounts {
  crash::StateCounts states;
  std::map<crash::Loaded, int64_t> outcomes;
  int64_t bad = 0;
};

struct Outcome {
  std::vector<crash::FileOperation> operations;
  std::vector<std::string> notices;
  crash::Disk before;
  What what;      ///< that was saved
  What old_what;  ///< that was there before
  bool had_previous = false;
  std::string new_answer;
  std::string old_answer;
  std::map<std::string, std::string> versions;
  std::map<crash::CrashModel, ModelCounts> models;  ///< those that were asked for
  int64_t points = 0;               ///< under ext4-ordered and posix, of 1 + operations.size()
  int64_t kill_points = 0;          ///< under kill, likewise
  int64_t choices_max = INT64_MAX;  ///< of the combinations of losses at one of them
  int64_t loads = 0;
  int64_t bad_count = 0;
  crash::CrashReport report;
  std::vector<BadGroup> groups;  ///< those that need the weakest model first
  /// Why nothing can be said; empty: it can.
  std::string inconclusive;
};

struct ProgressNote {
  std::string line;
  bool is_count = false;  ///< one of many such lines: a number goes up
};
using Progress = std::function<void(const ProgressNote&)>;

/// \param scratch  an empty directory
/// \error kBadInput if a command fails, a checkpoint does not load, or options do not fit what is
///   there; kUnsupported if the save does what cannot be recorded.
Result<Outcome> TestSave(const Options& options, Loader& loader, const std::string& scratch,
                         const Progress& progress);

/// Of `report`, whose states are those of `operations`.
std::vector<BadGroup> GroupsOf(const crash::CrashReport& report,
                               const std::vector<crash::FileOperation>& operations);

}  // namespace shardproof::crashtest
