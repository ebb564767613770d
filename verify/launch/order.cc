#include "verify/launch/order.h"

#include <nlohmann/json.hpp>

namespace shardproof {

using nlohmann::json;

json OrderFor(const PhaseRun& run) {
  json captures = json::array();
  for (const CaptureRequest& c : run.captures) {
    captures.push_back({c.phase, c.tensor, c.byte_start, c.byte_length});
  }
  return {{"case", CaseToJson(run.test_case)},
          {"phase", run.phase.name},
          {"source", run.source},
          {"save_to", run.save_to},
          {"evidence", run.evidence},
          {"captures", captures}};
}

Result<PhaseRun> RunFromOrder(const json& order) {
  PhaseRun run;
  SP_ASSIGN(run.test_case, ParseCase(order.at("case")));
  for (const PhasePlan& phase : PlanPhases(run.test_case)) {
    if (phase.name == order.at("phase")) run.phase = phase;
  }
  run.source = order.at("source");
  run.save_to = order.at("save_to");
  run.evidence = order.at("evidence");
  for (const json& c : order.at("captures")) run.captures.push_back({c[0], c[1], c[2], c[3]});
  // Only faults ask where a tensor lies.
  if (run.test_case.faults.empty()) return run;
  SP_ASSIGN(run.locations, oracle::LocateSource(run.test_case, run.source));
  return run;
}

}  // namespace shardproof
