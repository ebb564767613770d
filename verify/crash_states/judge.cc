#include "verify/crash_states/judge.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
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

/// What may be loaded, a refusal only with a line.
std::vector<Loaded> Allowed(const CrashState& state, int64_t count, bool had_previous) {
  if (count == 0 && !had_previous) return {Loaded::kOld, Loaded::kRefused};
  if (count == 0) return {Loaded::kOld};
  if (state.after == count) return {Loaded::kNew};
  if (state.after == 0 && !state.in_flight) {
    return {had_previous ? Loaded::kOld : Loaded::kRefused};
  }
  if (had_previous) return {Loaded::kNew, Loaded::kOld, Loaded::kRefused};
  return {Loaded::kNew, Loaded::kRefused};
}

bool IsAmong(const std::vector<Loaded>& allowed, const LoadOutcome& outcome) {
  if (outcome.loaded == Loaded::kRefused && outcome.line.empty()) return false;
  return std::find(allowed.begin(), allowed.end(), outcome.loaded) != allowed.end();
}

BadState BadOf(const CrashState& state, const std::vector<FileOperation>& operations) {
  BadState bad{.model = state.model,
               .after = state.after,
               .last_operation = "none",
               .in_flight = state.in_flight,
               .lost = state.what,
               .lacks = state.lacks,
               .disk = state.disk};
  const int64_t last = state.in_flight ? state.after : state.after - 1;
  if (last >= 0) {
    bad.last_rank = operations[last].rank;
    bad.last_operation = Describe(operations[last]) + (state.in_flight ? ", under way" : "");
  }
  return bad;
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
                     ToString(model), after, LastOperation(), lost, Expected(),
                     ToString(outcome.loaded), outcome.line.empty() ? "" : ": ", outcome.line);
}

std::string BadState::Expected() const {
  std::string text;
  for (size_t i = 0; i < allowed.size(); ++i) {
    text += i == 0 ? "" : i + 1 < allowed.size() ? ", " : " or ";
    text += ToString(allowed[i]);
    if (allowed[i] == Loaded::kRefused) text += " with a line";
  }
  return text;
}

std::string BadState::LastOperation(const std::string& performer) const {
  if (last_rank < 0) return last_operation;
  return fmt::format("{} {}: {}", performer, last_rank, last_operation);
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
    std::vector<Loaded> allowed = Allowed(state, count, judge_options.had_previous);
    if (IsAmong(allowed, outcome)) return Ok();
    ++report.bad_count;
    if (static_cast<int64_t>(report.bad.size()) >= judge_options.bad_max) return Ok();
    report.bad.push_back(BadOf(state, operations));
    report.bad.back().outcome = std::move(outcome);
    report.bad.back().allowed = std::move(allowed);
    return Ok();
  };
  SP_ASSIGN(report.states, VisitStates(before, operations, options, visit));
  report.loads = loads.count();
  return report;
}

}  // namespace shardproof::crash
