#include "verify/plan/plan.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "verify/fault/fault.h"

namespace shardproof {

int64_t PhasePlan::WorldSize() const {
  int64_t world = 1;
  for (const AxisCase& axis : mesh) world *= axis.size;
  return world;
}

namespace {

bool AnyFault(const Case& test_case, const std::function<bool(FaultModel)>& is) {
  return std::any_of(test_case.faults.begin(), test_case.faults.end(), [&](const FaultCase& fault) {
    const auto known = FindFault(fault.id);
    return known.ok() && is(known.value().model);
  });
}

using Cannot = std::map<std::string, std::string>;

/// Whether the faults strike a training job, which has older saves to go back to and more to lose,
/// and not a model that is loaded and saved.
bool IsOfTraining(const Case& test_case, const Cannot& cannot) {
  return test_case.steps > 0 && !cannot.contains("train") &&
         AnyFault(test_case, [](FaultModel model) { return model != FaultModel::kMustBeSeen; });
}

/// The phase that is struck, as it is without faults, and once more where nothing was before.
void AddAfter(const Case& test_case, std::vector<PhasePlan>& phases) {
  if (!Disrupts(test_case) || !phases.back().armed || !phases.back().saves) return;
  PhasePlan after = phases.back();
  after.armed = false;
  after.beside_struck = true;
  after.follows = std::exchange(after.name, "after");
  PhasePlan undisturbed = after;
  undisturbed.name = "undisturbed";
  undisturbed.follows.clear();
  phases.push_back(std::move(after));
  phases.push_back(undisturbed);
  if (test_case.subject == kReference || !undisturbed.trains) return;
  undisturbed.name = "undisturbed_again";
  phases.push_back(std::move(undisturbed));
}

void AddTraining(const Case& test_case, const Cannot& cannot, std::vector<PhasePlan>& phases) {
  if (test_case.steps == 0 || cannot.contains("train")) return;
  const bool saves = !cannot.contains("save");
  phases.push_back({.name = "train",
                    .strategy = test_case.strategy,
                    .mesh = test_case.mesh,
                    .armed = IsOfTraining(test_case, cannot),
                    .planted = true,
                    .saves = saves,
                    .trains = true});
  AddAfter(test_case, phases);
  phases.push_back({.name = "again",
                    .strategy = test_case.strategy,
                    .mesh = test_case.mesh,
                    .planted = true,
                    .trains = true});
  if (test_case.subject == kReference && test_case.training.offload > 0) {
    phases.push_back({.name = "train_on_device",
                      .strategy = test_case.strategy,
                      .mesh = test_case.mesh,
                      .planted = true,
                      .trains = true,
                      .offloads = false});
  }
  if (saves && !test_case.resume_mesh.empty()) {
    phases.push_back({.name = "train_resume",
                      .strategy = test_case.strategy,
                      .mesh = test_case.resume_mesh,
                      .planted = true,
                      .resumes = "train",
                      .trains = true});
  }
}

}  // namespace

bool Disrupts(const Case& test_case) {
  return AnyFault(test_case,
                  [](FaultModel model) { return MayEnd(model) || model == FaultModel::kMustGoOn; });
}

std::string StruckPhase(const Case& test_case, const Cannot& cannot) {
  return IsOfTraining(test_case, cannot) ? "train" : "values";
}

std::vector<PhasePlan> PlanPhases(const Case& test_case, const Cannot& cannot) {
  const bool saves = !cannot.contains("save");
  std::vector<PhasePlan> phases;
  phases.push_back({.name = "values",
                    .strategy = test_case.strategy,
                    .mesh = test_case.mesh,
                    .armed = !IsOfTraining(test_case, cannot),
                    .planted = true,
                    .saves = saves});
  AddAfter(test_case, phases);
  if (test_case.strategy != "plain" && !cannot.contains("plain")) {
    phases.push_back({.name = "plain", .strategy = "plain", .mesh = test_case.mesh});
  }
  if (saves && !test_case.resume_mesh.empty()) {
    phases.push_back({.name = "resume",
                      .strategy = test_case.strategy,
                      .mesh = test_case.resume_mesh,
                      .planted = true,
                      .resumes = "values"});
  }
  AddTraining(test_case, cannot, phases);
  phases.push_back({.name = "memory",
                    .mode = RunMode::kMemory,
                    .strategy = test_case.strategy,
                    .mesh = test_case.mesh,
                    .planted = true,
                    .saves = saves});
  if (test_case.subject == kReference && test_case.strategy != "plain") {
    phases.push_back({.name = "memory_plain",
                      .mode = RunMode::kMemory,
                      .strategy = "plain",
                      .mesh = test_case.mesh,
                      .only_shown = true});
  }
  return phases;
}

std::string ToString(RunMode mode) { return mode == RunMode::kValues ? "values" : "memory"; }

}  // namespace shardproof
