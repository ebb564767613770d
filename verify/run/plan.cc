#include "verify/run/plan.h"

namespace shardproof {

int64_t PhasePlan::WorldSize() const {
  int64_t world = 1;
  for (const AxisCase& axis : mesh) world *= axis.size;
  return world;
}

std::vector<PhasePlan> PlanPhases(const Case& test_case) {
  std::vector<PhasePlan> phases;
  phases.push_back({.name = "values",
                    .strategy = test_case.strategy,
                    .mesh = test_case.mesh,
                    .armed = true,
                    .planted = true,
                    .saves = true});
  if (test_case.strategy != "plain") {
    phases.push_back({.name = "plain", .strategy = "plain", .mesh = test_case.mesh});
  }
  if (!test_case.resume_mesh.empty()) {
    phases.push_back({.name = "resume",
                      .strategy = test_case.strategy,
                      .mesh = test_case.resume_mesh,
                      .planted = true,
                      .resumes = true});
  }
  phases.push_back({.name = "memory",
                    .mode = RunMode::kMemory,
                    .strategy = test_case.strategy,
                    .mesh = test_case.mesh,
                    .planted = true,
                    .saves = true});
  return phases;
}

std::string ToString(RunMode mode) { return mode == RunMode::kValues ? "values" : "memory"; }

}  // namespace shardproof
