// From a Case to the launches that answer it: pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "verify/case/case.h"

namespace shardproof {

/// One launch of the subject.
struct PhasePlan {
  Phase phase = Phase::kValues;
  std::string strategy = {};
  std::vector<AxisCase> mesh = {};       ///< the axes that multiply to the world
  std::vector<AxisCase> laid_over = {};  ///< those that are laid over some of them
  bool armed = false;                    ///< faults strike here
  bool saves = false;                    ///< saves a checkpoint, and in a values run restores it
  bool trains = false;                   ///< takes the Case's optimizer steps
  /// The phase that was struck: this one saves where that has saved, whatever it left there.
  std::optional<Phase> follows = {};

  const char* name() const { return NameOf(phase); }
  const PhaseFacts& facts() const { return FactsOf(phase); }
  int64_t WorldSize() const;
};

/// The launches of a subject, in order; `cannot` says what it lacks. kPhases says what each is for.
/// kPlain and kMemoryPlain: unless that strategy is what was asked for. kTrainOnDevice: where the
/// host is to do a part of the steps. What repeats the struck phase: right after it, where faults
/// strike that end ranks or hold them up (Disrupts).
std::vector<PhasePlan> PlanPhases(const Case& test_case,
                                  const std::map<std::string, std::string>& cannot = {});

/// Whether faults strike that say what must be true after them, and of the job without them.
bool Disrupts(const Case& test_case);

/// The phase that a Case's faults strike.
Phase StruckPhase(const Case& test_case, const std::map<std::string, std::string>& cannot = {});

}  // namespace shardproof
