#include "verify/plan/plan.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "verify/case/axes.h"
#include "verify/case/names.h"
#include "verify/fault/fault.h"

namespace shardproof {

int64_t PhasePlan::WorldSize() const { return RanksOf(mesh); }

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

/// What the table says of a phase, for this Case.
PhasePlan Planned(Phase phase, const Case& test_case, const Cannot& cannot) {
  const PhaseFacts& facts = FactsOf(phase);
  const auto& mesh = facts.on_resume_mesh ? test_case.resume_mesh : test_case.mesh;
  return {.phase = phase,
          .strategy = facts.is_plain ? kPlainStrategy : test_case.strategy,
          .mesh = WorldAxes(mesh),
          .laid_over = LaidOver(mesh),
          .armed = facts.may_be_struck && phase == StruckPhase(test_case, cannot),
          .saves = facts.saves && !cannot.contains("save"),
          .trains = facts.trains};
}

/// Whether the Case asks for the phase, and the subject can. \pre it repeats no other one.
bool IsAskedFor(const PhaseFacts& facts, const Case& test_case, const Cannot& cannot) {
  const bool is_reference = test_case.subject == kReference;
  if (facts.trains && (test_case.steps == 0 || cannot.contains("train"))) return false;
  if (facts.resumes && (test_case.resume_mesh.empty() || cannot.contains("save"))) return false;
  // Steps that save nothing are there to be held against those that were resumed from a save.
  const bool is_held_against_resumed = facts.trains && !facts.saves && facts.offloads;
  if (is_held_against_resumed && cannot.contains("save")) return false;
  if (facts.one_reads && (is_reference || RanksOf(WorldAxes(test_case.mesh)) == 1)) return false;
  if (facts.is_plain && (test_case.strategy == kPlainStrategy || cannot.contains("plain")))
    return false;
  return facts.offloads || (is_reference && test_case.training.offload > 0);
}

/// The phase that is struck, as it is without faults, and once more where nothing was before.
void AddRepeats(const Case& test_case, std::vector<PhasePlan>& phases) {
  if (!Disrupts(test_case) || !phases.back().armed || !phases.back().saves) return;
  const PhasePlan struck = phases.back();
  for (const PhaseFacts& facts : kPhases) {
    if (!facts.repeats_struck) continue;
    // The reference is deterministic, and so is what takes no steps.
    const bool tells_nothing = test_case.subject == kReference || !struck.trains;
    if (facts.phase == Phase::kUndisturbedAgain && tells_nothing) continue;
    PhasePlan repeat = struck;
    repeat.phase = facts.phase;
    repeat.armed = false;
    if (facts.follows_struck) repeat.follows = struck.phase;
    phases.push_back(std::move(repeat));
  }
}

}  // namespace

bool Disrupts(const Case& test_case) {
  return AnyFault(test_case,
                  [](FaultModel model) { return MayEnd(model) || model == FaultModel::kMustGoOn; });
}

Phase StruckPhase(const Case& test_case, const Cannot& cannot) {
  return IsOfTraining(test_case, cannot) ? Phase::kTrain : Phase::kValues;
}

std::vector<PhasePlan> PlanPhases(const Case& test_case, const Cannot& cannot) {
  std::vector<PhasePlan> phases;
  for (const PhaseFacts& facts : kPhases) {
    if (facts.repeats_struck || !IsAskedFor(facts, test_case, cannot)) continue;
    phases.push_back(Planned(facts.phase, test_case, cannot));
    AddRepeats(test_case, phases);
  }
  return phases;
}

}  // namespace shardproof
