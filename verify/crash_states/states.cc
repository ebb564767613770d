#include "verify/crash_states/states.h"

#include <fmt/format.h>

#include <map>
#include <unordered_map>
#include <utility>

#include "verify/crash_states/history.h"

namespace shardproof::crash {
namespace {

/// What a load may give depends on it: nothing was done yet, something was, all was.
enum class Phase { kBefore, kDuring, kAfter };

Phase PhaseOf(const CrashState& state, int64_t count) {
  if (state.after == count) return Phase::kAfter;
  return state.after == 0 && !state.in_flight ? Phase::kBefore : Phase::kDuring;
}

/// Equal hashes are compared in full: a state taken for another one would go unjudged.
class Seen {
 public:
  bool Insert(Phase phase, const CrashState& state) {
    std::vector<Disk>& alike = seen_[{state.model, phase}][state.disk.Hash()];
    for (const Disk& disk : alike) {
      if (disk == state.disk) return false;
    }
    alike.push_back(state.disk);
    return true;
  }

 private:
  std::map<std::pair<CrashModel, Phase>, std::unordered_map<uint64_t, std::vector<Disk>>> seen_;
};

Status VisitModel(CrashModel model, const History& history, const StateOptions& options,
                  const MakeVisitor& visit) {
  switch (model) {
    case CrashModel::kKill:
      return VisitKillStates(history, options, visit);
    case CrashModel::kExt4Ordered:
      return VisitExt4States(history, options, visit);
    case CrashModel::kPosix:
      return VisitPosixStates(history, options, visit);
  }
  return Internal("no such crash model");
}

}  // namespace

const char* ToString(CrashModel model) {
  switch (model) {
    case CrashModel::kKill:
      return "kill";
    case CrashModel::kExt4Ordered:
      return "ext4-ordered";
    case CrashModel::kPosix:
      return "posix";
  }
  return "unknown";
}

Result<CrashModel> ParseCrashModel(const std::string& name) {
  for (const CrashModel model : {CrashModel::kKill, CrashModel::kExt4Ordered, CrashModel::kPosix}) {
    if (name == ToString(model)) return model;
  }
  return BadInput(fmt::format("crash model '{}': expected kill, ext4-ordered or posix", name));
}

Result<StateCounts> VisitStates(const Disk& before, const std::vector<FileOperation>& operations,
                                const StateOptions& options, const StateVisitor& visit) {
  if (options.combinations_max < 1 || options.points_max < 1 || options.block_bytes < 1 ||
      options.tears_max < 1 || options.kill_points_max < 1 || options.choices_max < 1) {
    return BadInput(fmt::format(
        "crash states: expected positive numbers, found {} combinations, {} "
        "points, blocks of {} bytes, {} tears",
        options.combinations_max, options.points_max, options.block_bytes, options.tears_max));
  }
  SP_ASSIGN(const History history, ResolveAll(before, operations));
  StateCounts counts;
  Seen seen;
  for (const CrashModel model : options.models) {
    SP_TRY(VisitModel(model, history, options, [&](CrashState&& state) -> Status {
      state.model = model;
      ++counts.made;
      if (!seen.Insert(PhaseOf(state, history.count()), state)) return Ok();
      ++counts.distinct;
      return visit(state);
    }));
  }
  return counts;
}

}  // namespace shardproof::crash
