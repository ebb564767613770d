#include "verify/run/plan.h"

namespace shardproof {

int64_t PhasePlan::WorldSize() const {
  int64_t world = 1;
  for (const AxisCase& axis : mesh) world *= axis.size;
  return world;
}

std::vector<PhasePlan> PlanPhases(const Case& test_case,
                                  const std::map<std::string, std::string>& cannot) {
  const bool saves = !cannot.contains("save");
  std::vector<PhasePlan> phases;
  phases.push_back({.name = "values",
                    .strategy = test_case.strategy,
                    .mesh = test_case.mesh,
                    .armed = true,
                    .planted = true,
                    .saves = saves});
  if (test_case.strategy != "plain" && !cannot.contains("plain")) {
    phases.push_back({.name = "plain", .strategy = "plain", .mesh = test_case.mesh});
  }
  if (saves && !test_case.resume_mesh.empty()) {
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
                    .saves = saves});
  return phases;
}

std::string ToString(RunMode mode) { return mode == RunMode::kValues ? "values" : "memory"; }

}  // namespace shardproof
