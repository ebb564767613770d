// Whether what was to be injected was: a fault that never fired tests nothing.
#include <fmt/format.h>

#include <algorithm>

#include "verify/verdict/property.h"

namespace shardproof {
namespace {

bool Fired(const FaultCase& fault, const Evidence& evidence) {
  for (const PhaseEvidence& phase : evidence.phases) {
    for (const RankEvidence& rank : phase.ranks) {
      for (const FaultRecord& record : rank.faults) {
        if (record.id == fault.id && record.where == fault.where) return true;
      }
    }
  }
  return false;
}

/// \claim      every fault that the Case asks for is on record as having fired on some rank.
/// \needs      fault records of any phase
/// \tolerance  none
/// \source     a fault that silently does not fire makes whatever follows meaningless
void Check(const Evidence& evidence, Judgement& judgement) {
  if (evidence.test_case.faults.empty()) {
    judgement.Skipped("no fault was to be injected");
    return;
  }
  for (const FaultCase& fault : evidence.test_case.faults) {
    if (Fired(fault, evidence)) {
      judgement.Compared();
    } else {
      judgement.Inconclusive(fmt::format("{}@{} never fired", fault.id, fault.where));
    }
  }
}

const PropertyRegistration kRegistration{{
    .id = "fault.every_fault_fires",
    .claim = "every fault that was to be injected fired",
    .needs = "every phase: fault records",
    .tolerance = "none",
    .source = "a fault that does not fire tests nothing",
    .killed_by = {},
    .check = Check,
}};

}  // namespace
}  // namespace shardproof
