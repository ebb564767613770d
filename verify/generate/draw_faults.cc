#include "verify/generate/draw_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "src/stage/stage.h"
#include "verify/case/names.h"
#include "verify/generate/draw.h"

namespace shardproof::draw {
namespace {

/// A stage that every rank comes to, whatever the case.
Stage EarlyStage() {
  return OneOf<Stage>({Stage::kBuilt, Stage::kSharded, Stage::kMaterialized, Stage::kReady});
}

/// "1@ready": the moment at which a rank comes to a stage.
std::string At(const std::string& rank, Stage stage) { return rank + "@" + NameOf(stage); }

using Certain = FaultDraw::Certain;
using Anywhere = FaultDraw::Anywhere;

/// Those of the faults that a case may have, by how they are drawn.
class Choices {
 public:
  Choices(const std::vector<DrawnFault>& faults, const Case& made)
      : faults_(faults), ranks_(made.WorldSize()), is_simulated_(made.transport == "sim") {}

  std::vector<DrawnFault> ThatStrike(bool need_processes) const {
    return Those([&](const FaultDraw& draw) {
      return draw.certain != Certain::kNowhere && draw.needs_processes == need_processes;
    });
  }
  std::vector<DrawnFault> Somewhere(Anywhere anywhere) const {
    return Those([&](const FaultDraw& draw) { return draw.anywhere == anywhere; });
  }

 private:
  std::vector<DrawnFault> Those(const std::function<bool(const FaultDraw&)>& wanted) const {
    std::vector<DrawnFault> those;
    for (const DrawnFault& fault : faults_) {
      const FaultDraw& draw = fault.draw;
      const bool can = (!draw.needs_others || ranks_ > 1) &&
                       (!draw.only_simulated || is_simulated_) &&
                       (!draw.needs_processes || !is_simulated_);
      if (can && wanted(draw)) those.push_back(fault);
    }
    return those;
  }

  const std::vector<DrawnFault>& faults_;
  const int64_t ranks_;
  const bool is_simulated_;
};

/// Rank 0 comes by its first call whatever the case: it maps the checkpoint, makes what a save is
/// written into, writes, syncs and renames it, and reads it back.
FaultCase AtCertain(const DrawnFault& fault, const std::string& moment,
                    const std::string& allocation) {
  if (fault.draw.certain == Certain::kEarlyStage) return {fault.id, moment};
  return {fault.id, fault.draw.certain == Certain::kAllocation ? allocation : "0:0"};
}

/// Whether there is a byte to be damaged in what it saves.
bool SavesBytes(const Case& made) {
  return std::any_of(
      made.model.tensors.begin(), made.model.tensors.end(), [](const TensorCase& tensor) {
        return tensor.persistent && TensorBytes(tensor.dtype, tensor.shape).value_or(0) > 0;
      });
}

/// One file of a save, `back` saves before the last.
FaultCase DamageOfSave(int64_t back) {
  const std::string edit = OneOf<std::string>({"gone", "cut", "tail", "flip", "flip"});
  const std::string where = fmt::format("{}:{}", edit, Between(0, 999999));
  return {"file/damage-save", back == 0 ? where : fmt::format("{}@{}", where, back)};
}

FaultCase FaultThatStrikes(const Case& made, const Choices& choices) {
  const int64_t ranks = made.WorldSize();
  if (made.transport != "sim" && Chance(40)) {
    const std::string moment = At(std::to_string(Between(0, ranks - 1)), EarlyStage());
    const std::string allocation = fmt::format("{}:0", Between(0, 800));
    return AtCertain(OneOf(choices.ThatStrike(true)), moment, allocation);
  }
  const std::string rank = std::to_string(Between(0, ranks - 1));
  const Stage early = EarlyStage();
  if (SavesBytes(made) && Chance(8)) return {"file/rot", std::to_string(Between(0, 9999))};
  if (Chance(16)) return DamageOfSave(0);
  return AtCertain(OneOf(choices.ThatStrike(false)), At(rank, early), "0:0");
}

/// Anything, anywhere: it may never come to it.
FaultCase FaultSomewhere(const Case& made, const Choices& choices) {
  const bool trains = made.steps > 0;
  const std::string rank = std::to_string(Between(0, made.WorldSize() - 1));
  if (Chance(30)) {
    return {OneOf(choices.Somewhere(Anywhere::kCollective)).id,
            fmt::format("{}@#{}", rank, Between(0, trains ? 80 : 30))};
  }
  return {OneOf(choices.Somewhere(Anywhere::kCall)).id,
          fmt::format("{}:{}", Between(0, trains ? 40 : 12), rank)};
}

/// Two ranks of a world, another one each time.
std::pair<std::string, std::string> TwoRanks(int64_t ranks) {
  const int64_t one = Between(0, ranks - 1);
  return {std::to_string(one), std::to_string((one + Between(1, ranks - 1)) % ranks)};
}

/// Two that both strike: the first does not end the job, or the other strikes before the job has
/// heard of it, on another rank at the same stage.
std::vector<FaultCase> BothStrike(Case& made) {
  const int64_t ranks = made.WorldSize();
  const std::string any = std::to_string(Between(0, ranks - 1));
  if (!made.faults.empty())
    return {made.faults[0],
            {"rank/kill", At(any, Stage::kResumed)}};  // restored from an older save
  if (ranks == 1 || Chance(10)) {
    return {{"file/slow", "0:0"},
            OneOf<FaultCase>({{"file/fsync", "0:0"},
                              {"file/rename", "0:0"},
                              {"rank/kill", At(any, Stage::kSaved)}})};
  }
  const auto [a, b] = TwoRanks(ranks);
  if (made.transport != "sim" && Chance(30)) {
    return {{OneOf<std::string>({"store/gone", "rank/slow"}), At(a, Stage::kBuilt)},
            {OneOf<std::string>({"rank/kill", "rank/stop"}),
             At(b, OneOf<Stage>({Stage::kReady, Stage::kSaved}))}};
  }
  const bool rank0_writes_alone = made.steps > 0 && made.training.gathered;
  if (Chance(50) && !rank0_writes_alone)
    return {{"file/fsync", "0:" + a},
            {OneOf<std::string>({"file/fsync", "file/enospc"}), "0:" + b}};
  const Stage stage = EarlyStage();
  const std::vector<std::string> lost = {"rank/kill", "rank/leave"};
  return {{OneOf(lost), At(a, stage)}, {OneOf(lost), At(b, stage)}};
}

}  // namespace

void AddDamageOfSaves(Case& made, int64_t kept) {
  const auto latest = [](const char* edit) -> FaultCase {
    return {"file/damage-save", fmt::format("latest-{}:{}", edit, Between(0, 9999))};
  };
  const FaultCase newest = DamageOfSave(0);
  switch (Between(0, kept > 2 ? 6 : 4)) {
    case 0:
      made.faults = {{"file/rot", std::to_string(Between(0, 9999))}};
      return;
    case 1:
      made.faults = {latest(OneOf<const char*>({"gone", "cut", "flip"}))};
      return;
    case 2:
      made.faults = {latest("older")};
      return;
    case 3:  // and is looked at where it is told which saves are to stay
      made.faults = {{"file/damage-save", fmt::format("gone:{}@1", Between(0, 9999))}};
      return;
    case 4:
      made.faults = {newest};
      return;
    case 5:
      made.faults = {newest, DamageOfSave(1)};
      return;
    default:
      made.faults = {{"file/damage-save", "latest-older:0"}, DamageOfSave(1)};
      return;
  }
}

void AddFaults(Case& made, const std::vector<DrawnFault>& faults) {
  const int64_t ranks = made.WorldSize();
  made.as_stated = true;
  made.device = "cpu";
  // What is lost without a process being gone is known after this, over real transports.
  if (made.transport != "sim") made.deadline_ms = 6000;
  if (Chance(50)) {
    made.faults = BothStrike(made);
    return;
  }
  const Choices choices(faults, made);
  const bool is_late = Chance(50);
  const std::string at_the_end = At(std::to_string(Between(0, ranks - 1)), Stage::kSaved);
  made.faults = {is_late ? FaultCase{"rank/kill", at_the_end} : FaultThatStrikes(made, choices)};
  if (is_late || Chance(40)) made.faults.push_back(FaultSomewhere(made, choices));
}

namespace {

/// How many tensors of a checkpoint have a byte, at least: whatever is missing and tied.
size_t StoredWithBytes(const ModelCase& model) {
  const auto is_among = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const auto has_bytes = [&](const TensorCase& tensor) {
    const bool is_tied = std::any_of(model.ties.begin(), model.ties.end(),
                                     [&](const auto& tie) { return is_among(tie, tensor.name); });
    return tensor.persistent && !is_tied && !is_among(model.missing, tensor.name) &&
           TensorBytes(tensor.dtype, tensor.shape).value_or(0) > 0;
  };
  return model.unexpected.size() +
         static_cast<size_t>(std::count_if(model.tensors.begin(), model.tensors.end(), has_bytes));
}

}  // namespace

void AddDamage(Case& made) {
  const size_t stored = StoredWithBytes(made.model);
  if (stored == 0) return;
  made.as_stated = true;
  const int64_t n = Between(0, 9999);
  if (made.model.format == "dcp") {
    made.faults = {{"file/damage-dcp", fmt::format("any:{}", n)}};
    return;
  }
  std::vector<std::string> edits = {"cut",    "tail",   "length", "dtype", "shape",
                                    "offset", "number", "twice",  "gone"};
  // There is an index where there are several files, and no file without a tensor.
  if (made.model.files > 1 && stored > 1) edits.insert(edits.end(), {"other-file", "absent-file"});
  made.faults = {{"file/damage", fmt::format("{}:{}", OneOf(edits), n)}};
}

void AddOccupied(Case& made) {
  made.as_stated = true;
  std::vector<std::string> forms = {"file",      "foreign", "beside-index", "beside-metadata",
                                    "in-folder", "shards",  "empty"};
  if (made.steps > 0) forms.emplace_back("root");
  made.faults = {{"file/occupied", fmt::format("{}:{}", OneOf(forms), Between(0, 99))}};
}

}  // namespace shardproof::draw
