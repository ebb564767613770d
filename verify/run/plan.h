// From a Case to the launches that answer it: pure.
#pragma once

#include <string>
#include <vector>

#include "verify/case/case.h"
#include "verify/run/recorder.h"

namespace shardproof {

/// One launch of the subject.
struct PhasePlan {
  std::string name;  ///< "values", "plain", "resume", "memory"
  RunMode mode = RunMode::kValues;
  std::string strategy;
  std::vector<AxisCase> mesh;
  bool armed = false;    ///< faults strike here
  bool planted = false;  ///< a planted bug is in the pipeline here
  bool saves = false;    ///< saves a checkpoint, and in a values run restores it
  bool resumes = false;  ///< does nothing but restore what "values" saved

  int64_t WorldSize() const;
};

/// The launches of a subject; `cannot` says what it lacks.
/// values: what the Case asks for. plain: the yardstick, unless that is what was asked for. resume:
/// restore on another mesh. memory: the values phase again, unpoisoned and measured.
std::vector<PhasePlan> PlanPhases(const Case& test_case,
                                  const std::map<std::string, std::string>& cannot = {});

std::string ToString(RunMode mode);

}  // namespace shardproof
