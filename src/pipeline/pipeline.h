// The reference pipeline: load, shard, save, restore.
#pragma once

#include "src/checkpoint/save.h"
#include "src/contract/stages.h"

namespace shardproof {

/// Loads job.checkpoint onto job.mesh. Observed stages: built, loaded, sharded, materialized,
/// ready. On every rank; collective. \error as the leaves say, the same outcome on every rank. Of a
/// root of saved steps it loads the one that "latest" names; if that is refused, the newest older
/// one that is not, and says so by a notice. \error of none, naming each and why.
Result<Model> Load(const Job& job, const Stages& stages, World& world);

/// Takes optimizer steps until `last` are taken. Each is observed as `stage`: kStepped, or
/// kResumed after a restore. Collective. \pre job.training.steps > 0 when the model was loaded.
Status Train(Model& model, int64_t last, Stage stage, const Job& job, const Stages& stages,
             World& world);

/// Saves `model` to job.save_to, or if the job trains below it, as the step that it has taken.
/// Observed stage: saved. Collective.
Status Save(const Model& model, const Job& job, const Stages& stages, World& world);

/// A save whose files are written while the job goes on.
class PendingSave {
 public:
  /// Waits for this rank's files, and commits. Collective; to be called once, by every rank.
  Status Finish() { return save_->Finish(writing_->Wait()); }

 private:
  friend Result<std::unique_ptr<PendingSave>> StartSave(const Model&, const Job&, const Stages&,
                                                        World&);

  Model snapshot_;
  std::unique_ptr<SaveUnderWay> save_;
  std::unique_ptr<PendingTask> writing_;  // last: it reads the others until it has ended
};

/// Begins to save what `model` is now, by world.background: what becomes of it does not matter. One
/// at a time. Takes as much of the host's memory as the rank's shards. Observed stage: saved.
/// Collective. `stages` outlives it. \pre the job trains.
Result<std::unique_ptr<PendingSave>> StartSave(const Model& model, const Job& job,
                                               const Stages& stages, World& world);

/// Loads what was saved at job.save_to into a fresh model on job.mesh. Observed stage: restored,
/// and none on the way. Collective.
Result<Model> Restore(const Job& job, const Stages& stages, World& world);

}  // namespace shardproof
