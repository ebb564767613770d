// Loads every state that a crash may leave, and says which of them a save must not leave.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/crash_states/disk.h"
#include "verify/crash_states/states.h"

namespace shardproof::crash {

/// What a load of what a crash left gave.
enum class Loaded {
  kNew,      ///< the checkpoint that was being saved, whole
  kOld,      ///< the previous one, whole
  kRefused,  ///< an error that names what is wrong; the previous one is there and whole, or there
             ///< was none
  kWrong,  ///< anything else: other content, a mixture, a crash, a refusal and the previous one is
           ///< gone
};

/// "new", "old", "refused", "wrong".
const char* ToString(Loaded loaded);

/// What is wrong with what a load gave.
enum class Wrong {
  kLost,  ///< it fails, and the previous checkpoint is gone
  kDied,  ///< it dies, or does not end
  kElse,  ///< something else is loaded, without an error
};

struct LoadOutcome {
  Loaded loaded = Loaded::kWrong;
  std::string line;  ///< one line; of kRefused the error, of kWrong what was expected and found
  Wrong wrong = Wrong::kLost;  ///< of kWrong
};

/// Loads from a directory that holds one state, and may change it. Asked once of equal states.
/// \error if it cannot tell; that ends the run.
using Judge = std::function<Result<LoadOutcome>(const std::string& directory)>;

struct JudgeOptions {
  /// Whether there was a checkpoint before the save. Without one, a refusal takes its place.
  bool had_previous = true;
  int64_t bad_max = 20;  ///< so many bad states are kept; all are counted
};

/// A state that must not be: what was loaded is wrong, or refused without a line, or neither the
/// previous checkpoint before the first operation, nor the new one after the last.
struct BadState {
  CrashModel model = CrashModel::kKill;
  int64_t after = 0;           ///< operations that had been done
  int64_t last_rank = -1;      ///< whose the last operation is; -1 before the first
  std::string last_operation;  ///< in words; "none" before the first
  bool in_flight = false;      ///< that is, it was under way
  std::string lost;            ///< CrashState::what
  int64_t lacks = -1;          ///< CrashState::lacks
  LoadOutcome outcome;
  std::vector<Loaded> allowed;  ///< what should have been loaded: one of these
  Disk disk;                    ///< what was loaded from

  /// Of `allowed`: "new", "old", "new, old or refused with a line", ...
  std::string Expected() const;
  /// The last operation and whose it is: "rank 0: create of x"; "none".
  std::string LastOperation(const std::string& performer = "rank") const;

  /// One line.
  std::string Text() const;
};

struct CrashReport {
  StateCounts states;
  int64_t loads = 0;                                         ///< how often the judge was asked
  std::map<CrashModel, std::map<Loaded, int64_t>> outcomes;  ///< of the distinct states
  int64_t bad_count = 0;
  std::vector<BadState> bad;  ///< the first ones
};

/// Makes the states (VisitStates), writes each below `scratch`, a directory that exists (best one
/// in memory: nothing is synced, but a disk takes long to remove files), and has it judged: from a
/// save that is done the new checkpoint must load, from one that has not begun the previous, and in
/// between one of the two, or there must be an error that says what is wrong.
/// \error as
/// VisitStates; kFailed if a state cannot be written; what `judge` returns.
Result<CrashReport> RunStates(const Disk& before, const std::vector<FileOperation>& operations,
                              const StateOptions& options, const std::string& scratch,
                              const Judge& judge, const JudgeOptions& judge_options = {});

}  // namespace shardproof::crash
