// What a training job leaves on disk: below one root a directory for each step that it saved,
// "step-00000002", and beside them the file "latest", which names the one that a restore takes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/checkpoint/save.h"
#include "src/contract/stages.h"

namespace shardproof {

inline constexpr const char* kLatestName = "latest";

/// "step-00000002"; more digits where it has more.
std::string StepName(int64_t step);
/// The step that a directory of this name holds; nothing if no save gives that name.
std::optional<int64_t> StepOfName(std::string_view name);

/// Whether `directory` is the root of a job's steps: it holds directories of steps, or a "latest"
/// that names one, and no checkpoint.
bool IsStepRoot(FileSystem& files, const std::string& directory);

/// The directory that "latest" names, if `directory` is a root and it names one that is there; else
/// `directory` itself.
std::string NewestStepOf(FileSystem& files, const std::string& directory);

/// Whether a job may save its steps below `root`: it is absent or empty, or the root of steps.
/// \error kBadInput if not.
Status CheckStepRoot(FileSystem& files, const std::string& root);

/// Saves the model after model.step steps: writes and commits a directory of its own, then has
/// "latest" name it, and then removes what is older than the newest job.training.keep. Collective;
/// the same outcome on every rank. \error as Stages::save.
Status SaveStep(const Model& model, const Stages& stages, const Job& job, World& world);

/// The same in parts. \pre as BeginSave.
Result<std::unique_ptr<SaveUnderWay>> BeginStepSave(const Model& model, const Stages& stages,
                                                    const Job& job, World& world);

/// Stages::move_latest. Durable on return; a crash leaves the one text or the other.
Status MoveLatest(const std::string& root, const std::string& step, World& world);

/// Stages::retain. Of the steps up to the one that "latest" names, the newest `keep` stay that are
/// whole: that have a manifest, and the files that it names. What was left of a save that was
/// killed goes too; what has no name that a save gives stays, and so do later steps, which another
/// job left. \error kBadInput if "latest" is not right; then nothing is removed.
Status RetainSteps(const std::string& root, int64_t keep, World& world);

/// What a restore tries, one after the other.
struct StepsToTry {
  std::vector<std::string> names;
  std::string complaint;  ///< what is wrong with "latest", or empty
};

/// The step that "latest" names, and then the older ones from the newest on; all of them if
/// "latest" is not right. One without a manifest was never committed, or has lost it: not that one.
/// \error kBadInput if there is none.
Result<StepsToTry> FindSteps(FileSystem& files, const std::string& root);

}  // namespace shardproof
