#include "verify/rank/run_pipeline.h"

#include <memory>

#include "src/pipeline/pipeline.h"

namespace shardproof {
namespace {

/// Steps with the saves that the Case asks for: each is done when the next one begins, or the steps
/// end.
Status TrainAndSave(const PhaseRun& run, const Job& job, const Stages& stages, World& world) {
  SP_ASSIGN(Model model, Load(job, stages, world));
  std::unique_ptr<PendingSave> under_way;
  const auto finish = [&under_way] {
    const auto save = std::move(under_way);
    return save ? save->Finish() : Ok();
  };
  for (const int64_t step : run.test_case.SavedSteps()) {
    SP_TRY(Train(model, step, Stage::kStepped, job, stages, world));
    if (!run.phase.saves) continue;
    SP_TRY(finish());
    if (job.training.async) {
      SP_ASSIGN(under_way, StartSave(model, job, stages, world));
    } else {
      SP_TRY(Save(model, job, stages, world));
    }
  }
  SP_TRY(Train(model, job.training.steps, Stage::kStepped, job, stages, world));
  return finish();
}

/// Steps, and from the last save on once more from what was saved.
Status RunTraining(const PhaseRun& run, const Job& job, const Job& restored, const Stages& stages,
                   World& world) {
  if (!run.phase.facts().resumes) {
    SP_TRY(TrainAndSave(run, job, stages, world));
    if (!run.phase.saves) return Ok();
  }
  SP_ASSIGN(Model model, Restore(restored, stages, world));
  return Train(model, job.training.steps, Stage::kResumed, restored, stages, world);
}

/// The saves before the last, over the same path. Values are also saved in another layout, of which
/// the last must leave nothing; of memory, each must need as much as the one before. With a fault
/// there are none: it strikes what is saved over an earlier job's.
Status SaveBefore(const PhaseRun& run, const Model& model, Job job, const Stages& stages,
                  World& world) {
  if (!run.test_case.faults.empty()) return Ok();
  if (run.phase.facts().mode == RunMode::kValues) job.format = SaveFormat::kDcp;
  for (int64_t i = 1; i < run.test_case.saves; ++i) {
    world.observer->Enter(Stage::kSaved);
    SP_TRY(stages.save(model, stages, job, world));
  }
  return Ok();
}

}  // namespace

Status RunPipeline(const PhaseRun& run, const Job& job, const Stages& stages, World& world) {
  // What is initialised where it should be read must not come out alike. A tensor list may have
  // buffers that are in no checkpoint and drawn from the seed; these models have none.
  Job restored = job;
  if (job.from_scratch || job.lora) restored.seed = ~job.seed;
  if (run.phase.trains) return RunTraining(run, job, restored, stages, world);
  if (run.phase.facts().resumes) {
    SP_TRY(Restore(restored, stages, world));
    return Ok();
  }
  SP_ASSIGN(const Model model, Load(job, stages, world));
  if (!run.phase.saves) return Ok();
  SP_TRY(SaveBefore(run, model, job, stages, world));
  SP_TRY(Save(model, job, stages, world));
  // A memory run holds one model at a time.
  if (run.phase.facts().mode == RunMode::kValues) SP_TRY(Restore(restored, stages, world));
  return Ok();
}

}  // namespace shardproof
