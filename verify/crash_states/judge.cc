#include "verify/crash_states/judge.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <unordered_map>
#include <utility>

namespace shardproof::crash {
namespace {

/// Judges each disk once, whichever models and crash points leave it.
class Loads {
 public:
  Loads(const std::string& scratch, const Judge& judge)
      : directory_(scratch + "/state"), judge_(judge) {}
  ~Loads() { (void)Clear(); }

  Result<LoadOutcome> Of(const Disk& disk) {
    auto& alike = known_[disk.Hash()];
    for (const auto& [known, outcome] : alike) {
      if (known == disk) return outcome;
    }
    SP_TRY(Clear());
    if (::mkdir(directory_.c_str(), 0777) != 0) {
      return Failed(fmt::format("making directory {}: {}", directory_, std::strerror(errno)));
    }
    SP_TRY(disk.WriteTo(directory_));
    ++count_;
    SP_ASSIGN(LoadOutcome outcome, judge_(directory_));
    alike.emplace_back(disk, outcome);
    return outcome;
  }

  int64_t count() const { return count_; }

 private:
  Status Clear() const {
    std::error_code error;
    std::filesystem::remove_all(directory_, error);
    if (error) return Failed(fmt::format("removing {}: {}", directory_, error.message()));
    return Ok();
  }

  const std::string directory_;
  const Judge& judge_;
  std::unordered_map<uint64_t, std::vector<std::pair<Disk, LoadOutcome>>> known_;
  int64_t count_ = 0;
};

/// What must be loaded, in words; empty if `outcome` is it.
std::string Expected(const CrashState& state, int64_t count, const LoadOutcome& outcome,
                     bool had_previous) {
  const Loaded loaded = outcome.loaded;
  const bool refused = loaded == Loaded::kRefused && !outcome.line.empty();
  if (count == 0) {
    if (loaded == Loaded::kOld || (refused && !had_previous)) return "";
    return "old";
  }
  if (state.after == count) return loaded == Loaded::kNew ? "" : "new";
  if (state.after == 0 && !state.in_flight) {
    if (had_previous) return loaded == Loaded::kOld ? "" : "old";
    return refused ? "" : "refused with a line";
  }
  if (loaded == Loaded::kNew || (loaded == Loaded::kOld && had_previous) || refused) return "";
  return had_previous ? "new, old or refused with a line" : "new or refused with a line";
}

std::string LastOperation(const CrashState& state, const std::vector<FileOperation>& operations) {
  const int64_t last = state.in_flight ? state.after : state.after - 1;
  if (last < 0) return "none";
  return fmt::format("rank {}: {}{}", operations[last].rank, Describe(operations[last]),
                     state.in_flight ? ", under way" : "");
}

}  // namespace

const char* ToString(Loaded loaded) {
  switch (loaded) {
    case Loaded::kNew:
      return "new";
    case Loaded::kOld:
      return "old";
    case Loaded::kRefused:
      return "refused";
    case Loaded::kWrong:
      return "wrong";
  }
  return "unknown";
}

std::string BadState::Text() const {
  return fmt::format("{}, after {} operations (last: {}), {}: expected {}, loaded {}{}{}",
                     ToString(model), after, last_operation, lost, expected,
                     ToString(outcome.loaded), outcome.line.empty() ? "" : ": ", outcome.line);
}

Result<CrashReport> RunStates(const Disk& before, const std::vector<FileOperation>& operations,
                              const StateOptions& options, const std::string& scratch,
                              const Judge& judge, const JudgeOptions& judge_options) {
  CrashReport report;
  Loads loads(scratch, judge);
  const int64_t count = static_cast<int64_t>(operations.size());
  const auto visit = [&](const CrashState& state) -> Status {
    SP_ASSIGN(LoadOutcome outcome, loads.Of(state.disk));
    ++report.outcomes[state.model][outcome.loaded];
    std::string expected = Expected(state, count, outcome, judge_options.had_previous);
    if (expected.empty()) return Ok();
    ++report.bad_count;
    if (static_cast<int64_t>(report.bad.size()) >= judge_options.bad_max) return Ok();
    report.bad.push_back({state.model, state.after, LastOperation(state, operations),
                          state.in_flight, state.what, state.lacks, std::move(outcome),
                          std::move(expected), state.disk});
    return Ok();
  };
  SP_ASSIGN(report.states, VisitStates(before, operations, options, visit));
  report.loads = loads.count();
  return report;
}

}  // namespace shardproof::crash
