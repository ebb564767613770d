// From a Case to the launches that answer it: pure.
#pragma once

#include <string>
#include <vector>

#include "verify/case/case.h"

namespace shardproof {

enum class RunMode { kValues, kMemory };

/// One launch of the subject.
struct PhasePlan {
  std::string name;  ///< as PlanPhases says
  RunMode mode = RunMode::kValues;
  std::string strategy;
  std::vector<AxisCase> mesh;
  bool armed = false;        ///< faults strike here
  bool planted = false;      ///< a planted bug is in the pipeline here
  bool saves = false;        ///< saves a checkpoint, and in a values run restores it
  std::string resumes = {};  ///< does nothing but restore what the phase of this name saved
  std::string follows =
      {};  ///< saves where the phase of this name has saved, whatever it left there
  bool beside_struck = false;  ///< held against the phase that a fault struck, by what both leave
  bool trains = false;         ///< takes the Case's optimizer steps
  bool offloads =
      true;  ///< has the host do what the Case says of them; else its device has no limit
  bool only_shown = false;  ///< judged by nothing; a report shows it beside another phase

  int64_t WorldSize() const;
};

/// The launches of a subject; `cannot` says what it lacks.
/// values: what the Case asks for. plain: the yardstick, unless that is what was asked for. resume:
/// restore on another mesh. train: load, take steps, save as the Case says (once, halfway), and
/// from the last save on once as it is and once from what was saved. again: the same steps,
/// undisturbed, to tell whether they are deterministic. train_on_device: the same steps, none of
/// them the host's. train_resume: restore what train saved on another mesh. memory: the values
/// phase again, unpoisoned and measured. memory_plain: the reference by the plain strategy,
/// measured so. Where faults strike that end ranks or hold them up (Disrupts): after: the phase
/// that they strike once more, without them; undisturbed: the same where nothing was before;
/// undisturbed_again: that once more, of a subject that trains, to tell whether it is
/// deterministic.
std::vector<PhasePlan> PlanPhases(const Case& test_case,
                                  const std::map<std::string, std::string>& cannot = {});

/// Whether faults strike that say what must be true after them, and of the job without them.
bool Disrupts(const Case& test_case);

/// The phase that a Case's faults strike, by its name.
std::string StruckPhase(const Case& test_case,
                        const std::map<std::string, std::string>& cannot = {});

std::string ToString(RunMode mode);

}  // namespace shardproof
