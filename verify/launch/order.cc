#include "verify/launch/order.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "verify/case/names.h"

namespace shardproof {

using nlohmann::json;

PhasePlan PhaseOfTwin() { return {.strategy = kPlainStrategy, .mesh = {{"dp_shard", 1}}}; }

json OrderFor(const PhaseRun& run) {
  json captures = json::array();
  for (const CaptureRequest& c : run.captures) {
    captures.push_back({NameOf(c.phase), c.tensor, c.byte_start, c.byte_length});
  }
  // Ranks need not have this process's directory as theirs.
  const auto absolute = [](const std::string& path) {
    return path.empty() ? "" : std::filesystem::absolute(path).lexically_normal().string();
  };
  return {{"case", CaseToJson(run.test_case)},
          {"phase", run.phase.name()},
          {"is_twin", run.is_twin},
          {"values_of_steps", absolute(run.steps)},
          {"armed", run.phase.armed},  // this and the next hang on what a subject cannot do
          {"saves", run.phase.saves},
          {"source", absolute(run.source)},
          {"others_source", absolute(run.others_source)},
          {"save_to", absolute(run.save_to)},
          {"evidence", absolute(run.evidence)},
          {"fresh", run.fresh},
          {"captures", captures}};
}

Result<PhaseRun> RunFromOrder(const json& order) {
  PhaseRun run;
  SP_ASSIGN(run.test_case, ParseCase(order.at("case")));
  SP_ASSIGN(const Phase wanted, ParsePhase(order.at("phase").get<std::string>()));
  for (const PhasePlan& plan : PlanPhases(run.test_case)) {
    if (plan.phase == wanted) run.phase = plan;
  }
  run.is_twin = order.at("is_twin");
  run.steps = order.at("values_of_steps");
  if (run.is_twin) run.phase = PhaseOfTwin();
  run.phase.armed = order.at("armed");
  run.phase.saves = order.at("saves");
  run.fresh = order.at("fresh");
  run.source = order.at("source");
  run.others_source = order.at("others_source");
  run.save_to = order.at("save_to");
  run.evidence = order.at("evidence");
  for (const json& c : order.at("captures")) {
    SP_ASSIGN(const Phase phase, ParsePhase(c[0].get<std::string>()));
    run.captures.push_back({phase, c[1], c[2], c[3]});
  }
  // Only faults ask where a tensor lies.
  if (run.test_case.faults.empty()) return run;
  SP_ASSIGN(run.locations, oracle::LocateSource(run.test_case, run.source));
  return run;
}

}  // namespace shardproof
