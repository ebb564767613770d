// Whether what was to be injected was: a fault that never fired tests nothing.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "verify/verdict/select.h"

namespace shardproof::fault::every_fault_fires {
namespace {

/// Where a fault of a stage could have struck: "; stages that were reached: ready, stepped".
std::string Reached(const FaultCase& fault, const Evidence& evidence) {
  if (fault.where.find('@') == std::string::npos && fault.where.find("stage=") == std::string::npos)
    return "";
  std::vector<std::string> names;
  for (const PhaseEvidence& phase : evidence.phases) {
    for (const RankEvidence& rank : phase.ranks) {
      for (const StageRecord& stage : rank.stages) {
        if (std::find(names.begin(), names.end(), stage.name) == names.end()) {
          names.push_back(stage.name);
        }
      }
    }
  }
  if (names.empty()) return "; no stage was reached";
  return fmt::format("; stages that were reached: {}", fmt::join(names, ", "));
}

/// every fault that the Case asks for is on record as having fired on some rank; where what
/// comes of them is judged (as_stated), one of them: it may keep others from their place.
void Check(const Evidence& evidence, Judgement& judgement) {
  if (evidence.test_case.faults.empty()) {
    judgement.Skipped("no fault was to be injected");
    return;
  }
  const auto& faults = evidence.test_case.faults;
  const bool any_fired = std::any_of(faults.begin(), faults.end(), [&](const FaultCase& fault) {
    return HasStruck(fault, evidence);
  });
  for (const FaultCase& fault : faults) {
    if (HasStruck(fault, evidence)) {
      judgement.Compared();
    } else if (fault.where == "never") {
      judgement.Skipped(fmt::format("{} strikes only when fiu-ctrl enables it", fault.id));
    } else if (evidence.test_case.as_stated && any_fired) {
      judgement.Skipped(fmt::format("another fault came before {}@{}", fault.id, fault.where));
    } else {
      judgement.Inconclusive(
          fmt::format("{}@{} never fired{}", fault.id, fault.where, Reached(fault, evidence)));
    }
  }
}

const PropertyRegistration kRegistration{{
    .id = "fault.every_fault_fires",
    .claim = "Every fault that the case injects fires.",
    .reads = {{EveryPhase(), {}, "fault records"}},
    .tolerance = "none",
    .source = "a fault that does not fire tests nothing",
    .killed_by = {},
    .check = Check,
    .case_needs = R"({"faults": [{"id": "file/slow", "where": "0"}]})",
}};

}  // namespace
}  // namespace shardproof::fault::every_fault_fires
