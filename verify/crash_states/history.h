// A recording with its paths resolved, which every model makes its states of. Internal to the
// folder.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/core/result.h"
#include "verify/crash_states/disk.h"
#include "verify/crash_states/operation.h"
#include "verify/crash_states/states.h"

namespace shardproof::crash {

struct History {
  const std::vector<FileOperation>& operations;
  Disk before;
  std::vector<Change> changes;  ///< of the operations, one each
  std::vector<Disk> after;      ///< after[k]: when k operations are done, k in [0, count]
  /// `before`, with all inodes that are ever made, so that any change can be made to it alone.
  Disk base;

  int64_t count() const { return static_cast<int64_t>(changes.size()); }
  const Change& change(int64_t index) const { return changes[index]; }
};

/// \error as Disk::Resolve.
Result<History> ResolveAll(const Disk& before, const std::vector<FileOperation>& operations);

/// After how many operations it crashes, ascending; with 0 and all, and at most `points_max` if
/// that is 2 or more.
std::vector<int64_t> CrashPoints(const History& history, int64_t points_max);

/// By inode, the number of operations up to its last sync among the first `after`: those with a
/// smaller index were done when that began. 0 where it was not synced.
std::vector<int64_t> LastSyncs(const History& history, int64_t after);

/// By inode of a file, the indices of its writes, creates and truncates among the first `after`.
std::map<Inode, std::vector<int64_t>> DataChanges(const History& history, int64_t after);

/// Where a write may be torn: offsets within the file, ascending, each above its first byte and
/// below its last; at most options.tears_max.
std::vector<int64_t> Tears(const Change& write, const StateOptions& options);

/// Collects what was lost, for one line.
class Losses {
 public:
  explicit Losses(const History& history) : history_(history) {}
  void Lost(int64_t index) { Other(index, Words(index)); }
  void Torn(int64_t index, const std::string& how) {
    torn_.push_back({index, Words(index) + " " + how});
  }
  /// A part of what an operation did.
  void Other(int64_t index, const std::string& what) { lost_.push_back({index, what}); }
  std::string Words(int64_t index) const { return Describe(history_.operations[index]); }

  /// CrashState::what and CrashState::lacks.
  void TellIn(CrashState& state) const;

 private:
  struct Loss {
    int64_t index;
    std::string what;
  };
  static std::string Join(const std::vector<Loss>& losses);

  const History& history_;
  std::vector<Loss> lost_;
  std::vector<Loss> torn_;
};

using MakeVisitor = std::function<Status(CrashState&&)>;

Status VisitKillStates(const History& history, const StateOptions& options,
                       const MakeVisitor& visit);
Status VisitExt4States(const History& history, const StateOptions& options,
                       const MakeVisitor& visit);
Status VisitPosixStates(const History& history, const StateOptions& options,
                        const MakeVisitor& visit);

}  // namespace shardproof::crash
