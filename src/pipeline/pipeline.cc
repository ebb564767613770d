#include "src/pipeline/pipeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/checkpoint/steps.h"
#include "src/format/safetensors.h"
#include "src/load/key_match.h"
#include "src/model/rng.h"
#include "src/optim/optimizer.h"
#include "src/optim/step.h"

namespace shardproof {
namespace {

/// Lets only the end of an inner load through, under another name.
class RestoreObserver : public Observer {
 public:
  explicit RestoreObserver(std::shared_ptr<Observer> inner) : inner_(std::move(inner)) {}
  void Enter(Stage) override {}
  void Keys(const std::vector<std::string>&, const std::vector<std::string>&) override {}
  void Reached(Stage stage, int64_t step, const Model& model) override {
    if (stage == Stage::kReady) inner_->Reached(Stage::kRestored, step, model);
  }
  void Notice(const std::string& line) override { inner_->Notice(line); }

 private:
  std::shared_ptr<Observer> inner_;
};

/// This rank's own result, unless another rank failed: no rank goes on alone.
template <typename T>
Result<T> Agreed(World& world, Result<T> own, const std::string& what) {
  const Status status = own.ok() ? Ok() : Status(own.error());
  SP_TRY(Agree(*world.communicator, status, what));
  return own;
}

void ReportKeys(const KeyMatch& keys, Observer& observer) {
  std::vector<std::string> missing;
  for (const auto& slot : keys.missing) missing.push_back(slot->spec.name);
  observer.Keys(missing, keys.unexpected);
}

/// What to try if job.checkpoint is the root of a job's steps; nothing if it is a checkpoint. Rank
/// 0 looks, so that all ranks try the same.
Result<StepsToTry> StepsOf(const Job& job, World& world) {
  if (job.from_scratch) return StepsToTry{};
  StepsToTry steps;
  Status looked = Ok();
  if (world.rank() == 0 && IsStepRoot(*world.files, job.checkpoint)) {
    auto found = FindSteps(*world.files, job.checkpoint);
    if (found.ok())
      steps = std::move(found).value();
    else
      looked = found.error();
  }
  SP_TRY(Agree(*world.communicator, looked, "looking for saved steps"));
  nlohmann::json told = steps.names;
  told.push_back(steps.complaint);
  SP_ASSIGN(const std::string text,
            ShareText(*world.communicator,
                      steps.names.empty()
                          ? ""
                          : told.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                      0, "saved steps"));
  if (text.empty() || world.rank() == 0) return steps;
  steps.names = nlohmann::json::parse(text).get<std::vector<std::string>>();
  steps.complaint = std::move(steps.names.back());
  steps.names.pop_back();
  return steps;
}

/// What has to do with the root has to do with a step below it.
Job AtStep(const Job& job, const std::string& step) {
  Job at = job;
  at.checkpoint = job.checkpoint + "/" + step;
  const std::string below = job.checkpoint + "/";
  if (job.adapter.starts_with(below)) {
    at.adapter = at.checkpoint + "/" + job.adapter.substr(below.size());
  }
  return at;
}

Result<Model> LoadOne(const Job& job, const Stages& stages, World& world) {
  Observer& observer = *world.observer;

  observer.Enter(Stage::kBuilt);
  SP_ASSIGN(const Source source, stages.open_source(job, world));
  SP_ASSIGN(const ModelSpec spec,
            Agreed(world, stages.describe(job, source, world), "describing the model"));
  SP_ASSIGN(Model model, Agreed(world, stages.build(spec, job, world), "building the model"));
  observer.Reached(Stage::kBuilt, 0, model);

  observer.Enter(Stage::kLoaded);
  SP_ASSIGN(KeyMatch keys,
            Agreed(world, stages.match_keys(model, source), "matching the checkpoint's keys"));
  ReportKeys(keys, observer);
  SP_TRY(Agreed(world, stages.load(model, keys, source, job, world), "loading"));
  observer.Reached(Stage::kLoaded, 0, model);

  if (job.optimizer_first) {
    observer.Enter(Stage::kBound);
    model.optimizer = std::make_shared<Optimizer>(stages.make_optimizer(model, job.training));
    observer.Reached(Stage::kBound, 0, model);
  }

  observer.Enter(Stage::kSharded);
  // What the optimizer holds would stay in memory beside the shards.
  if (model.optimizer) {
    SP_TRY(
        Agreed(world, stages.unbind_optimizer(*model.optimizer, model), "unbinding the optimizer"));
  }
  SP_TRY(Agreed(world, stages.shard(model, keys, stages, job, world), "sharding"));
  observer.Reached(Stage::kSharded, 0, model);

  // From here on a rank holds no more than its own shards and one bucket.
  observer.Enter(Stage::kMaterialized);
  SP_TRY(Agreed(world, stages.materialize(model, world), "materialising"));
  observer.Reached(Stage::kMaterialized, 0, model);

  observer.Enter(Stage::kReady);
  SP_TRY(stages.fill(model, keys, source, stages, job, world));
  SP_TRY(stages.verify_loaded(keys, source, stages, job, world));
  SP_TRY(Agreed(world, stages.init_missing(model, keys, job, world), "initialising missing keys"));
  SP_TRY(Agreed(world, stages.compute_buffers(model, job, world), "computing buffers"));
  if (model.optimizer) {
    SP_TRY(
        Agreed(world, stages.rebind_optimizer(*model.optimizer, model), "binding the optimizer"));
  }
  if (job.training.steps > 0) SP_TRY(stages.start_training(model, source, stages, job, world));
  observer.Reached(Stage::kReady, model.step, model);
  return model;
}

}  // namespace

Result<Model> Load(const Job& job, const Stages& stages, World& world) {
  SP_ASSIGN(const StepsToTry steps, StepsOf(job, world));
  if (steps.names.empty()) return LoadOne(job, stages, world);
  std::vector<std::string> refused;
  if (!steps.complaint.empty()) refused.push_back(steps.complaint);
  for (const std::string& step : steps.names) {
    Result<Model> model = LoadOne(AtStep(job, step), stages, world);
    if (model.ok()) {
      if (!refused.empty()) {
        world.observer->Notice(fmt::format("{}: loaded {}, the newest that is whole: {}",
                                           job.checkpoint, step, fmt::join(refused, "; ")));
      }
      return model;
    }
    // What a checkpoint holds is wrong for every rank; anything else is not about this checkpoint.
    const ErrorCode code = model.error().code;
    if (code != ErrorCode::kBadInput && code != ErrorCode::kUnsupported) return model.error();
    refused.push_back(model.error().message);
  }
  if (steps.names.size() == 1 && steps.complaint.empty()) return BadInput(refused.front());
  return BadInput(
      fmt::format("{}: no saved step can be loaded: {}", job.checkpoint, fmt::join(refused, "; ")));
}

Status Train(Model& model, int64_t last, Stage stage, const Job& job, const Stages& stages,
             World& world) {
  while (model.step < last) {
    world.observer->Enter(stage);
    SP_TRY(Agreed(world, StepOptimizer(model, model.step + 1, stages, job, world),
                  "the optimizer's step"));
    for (ParameterGroup& group : model.optimizer->groups) {
      group.settings.learning_rate *= job.training.rate_decay;
    }
    DrawForStep(*model.rng);
    ++model.step;
    world.observer->Reached(stage, model.step, model);
  }
  return Ok();
}

Status Save(const Model& model, const Job& job, const Stages& stages, World& world) {
  world.observer->Enter(Stage::kSaved);
  SP_TRY(job.training.steps > 0 ? SaveStep(model, stages, job, world)
                                : stages.save(model, stages, job, world));
  world.observer->Reached(Stage::kSaved, model.step, model);
  return Ok();
}

Result<std::unique_ptr<PendingSave>> StartSave(const Model& model, const Job& job,
                                               const Stages& stages, World& world) {
  world.observer->Enter(Stage::kSaved);
  auto pending = std::make_unique<PendingSave>();
  SP_ASSIGN(pending->snapshot_,
            Agreed(world, stages.snapshot(model, world), "taking the snapshot"));
  SP_ASSIGN(pending->save_, BeginStepSave(pending->snapshot_, stages, job, world));
  pending->writing_ =
      world.background->Start([save = pending->save_.get()] { return save->Write(); });
  world.observer->Reached(Stage::kSaved, model.step, model);
  return pending;
}

Result<Model> Restore(const Job& job, const Stages& stages, World& world) {
  world.observer->Enter(Stage::kRestored);
  Job from_saved = job;
  from_saved.checkpoint = job.save_to;
  from_saved.from_scratch = false;
  from_saved.lora.reset();
  from_saved.optimizer_first = false;
  if (job.HasAdapter()) from_saved.adapter = job.save_to + "/" + kAdapterFolder;
  World quiet = world;
  quiet.observer = std::make_shared<RestoreObserver>(world.observer);
  return Load(from_saved, stages, quiet);
}

}  // namespace shardproof
