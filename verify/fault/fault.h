// A fault: something that happens to a job, injected by a decorator at a seam. One file a fault;
// the file registers itself; its id is its path with a slash (verify/faults/file_flip.cc is
// file/flip).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/contract/job.h"
#include "src/contract/stages.h"
#include "src/core/result.h"
#include "verify/case/case.h"
#include "verify/case/fault_draw.h"
#include "verify/evidence/evidence.h"
#include "verify/fault/in_subject.h"
#include "verify/fault/point.h"
#include "verify/oracle/oracle.h"

namespace shardproof {

/// What a correct pipeline must do when the fault strikes.
enum class FaultModel {
  kMustBeSeen,   ///< data is damaged: nothing can be done about it, a property must say so
  kMustGoOn,     ///< it only takes longer: every rank ends well, with what it would have had
  kMustRecover,  ///< a saved checkpoint is damaged: an older one that is whole must be restored, or
                 ///< if there is none every rank ends with an error that names file and tensor
  kMustRefuse,  ///< the source is damaged: every rank ends with an error that names file or tensor,
                ///< before it has a model that is ready
  kMustSpare,   ///< what no save has written lies where it saves: that stays as it is, and every
                ///< rank ends with an error that names it; what a save may replace, it replaces
  kMustAbortCleanly,  ///< every rank ends with an error that names what failed, and the rank that
                      ///< it failed on; nothing is lost
  kMustEndTheRun,     ///< a rank is lost or hangs: the others end within the deadline and name it
  kMustTellAll,       ///< a rank is cut off: it and all others end within the deadline and name it
  kMustEndInTime,  ///< a rank may fail in any way, or get over it: it and all others end within the
                   ///< deadline, and where it has failed they name it
};

/// As a fault's record in the evidence has it: "seen", "go-on", "recover", "refuse", "spare",
/// "abort", "end-the-run", "tell-all", "end-in-time".
const char* NameOf(FaultModel model);

/// Whether ranks may end early under it.
inline bool MayEnd(FaultModel model) {
  return model == FaultModel::kMustRefuse || model == FaultModel::kMustSpare ||
         model == FaultModel::kMustAbortCleanly || model == FaultModel::kMustEndTheRun ||
         model == FaultModel::kMustTellAll || model == FaultModel::kMustEndInTime;
}

/// All a fault may use on one rank.
struct FaultSite {
  const Case& test_case;
  const std::vector<oracle::TensorLocation>& source;  ///< where each tensor of the source lies
  const std::string& source_directory;
  const std::string& save_to;  ///< where the phase saves: a checkpoint, or a training job's root
  Stages& stages;
  World& world;
  std::string store;  ///< the file that the ranks met by; empty: they did so otherwise
  /// Puts the firing on record; to be called before the fault acts. Id, WHERE and model need not be
  /// given.
  FaultLog log;
  /// The stage that the rank works towards.
  std::function<std::string()> stage = [] { return std::string(); };
  /// Ends the rank as a signal would, at once and without its doing; of simulated ranks, which
  /// share a process. Null: a signal is sent.
  std::function<void()> die = {};

  /// Where the fault may strike on this rank, as `where` says (ParseTrigger).
  std::shared_ptr<FaultPoint> Point(const std::string& id, const std::string& where,
                                    bool from_then_on = false) const;
};

/// A WHERE, and what a fault does there on two ranks in a job of three steps, as DescribeFault has
/// it.
struct FaultExample {
  std::string where;
  std::string words;
};

struct Fault {
  std::string id;
  std::string what;   ///< one sentence
  std::string where;  ///< how WHERE is written, with an example
  FaultExample example;
  FaultModel model = FaultModel::kMustBeSeen;
  /// Checks WHERE before anything runs. \error kBadInput saying what was expected.
  std::function<Status(const Case&, const std::vector<oracle::TensorLocation>& source,
                       const std::string& where)>
      check;
  /// Decorates the seams or leaves of `site`, on every rank. Null: it strikes subjects alone.
  std::function<void(FaultSite site, const std::string& where)> arm;
  /// How it strikes a subject, WHERE having been checked; null: it acts at seams, which only the
  /// reference has. \error kBadInput for a WHERE that only the reference has.
  std::function<Result<SubjectFault>(const Case&, const std::string& where)> in_subject = {};
  /// What it does where WHERE says, as DescribeFault has it; "" of a WHERE that is none.
  std::function<std::string(const Case&, const std::string& where)> in_words = {};
  /// Why it cannot strike on this machine, in a line, or empty. Null: it can on any.
  std::function<std::string()> cannot = {};
  /// Whether the ranks that are struck must be in a network of their own (network_namespace.h).
  bool needs_own_network = false;
  /// Whether it may strike wherever tensors are: it reads and writes none of their bytes.
  bool on_any_device = false;
  /// Whether WHERE is a rank and a moment, as RankFault has it.
  bool at_a_moment = false;
  /// Where else the catalogue's test strikes: in a load of its model, over what `check` allows.
  std::vector<std::string> tried_at = {};
  FaultDraw draw = {};
};

/// Why one of a Case's faults cannot strike on this machine, with its id; empty: all can.
std::string WhyCannotStrike(const Case& test_case);

const std::vector<Fault>& AllFaults();
/// Those that generated cases draw, in the order of their places.
std::vector<DrawnFault> DrawnFaults();
/// Check of a Fault whose WHERE is a Trigger.
Status CheckTrigger(const Case& test_case, const std::vector<oracle::TensorLocation>& source,
                    const std::string& where);

/// \error kBadInput for an unknown id, with the known ones.
Result<Fault> FindFault(const std::string& id);

struct FaultRegistration {
  explicit FaultRegistration(Fault fault);
};

/// "TENSOR" or "TENSOR:REST" of a WHERE, where the tensor must be one of the source's.
struct TensorAndRest {
  oracle::TensorLocation tensor;
  std::string rest;  ///< empty if there is none
};
/// \error kBadInput naming a near miss if no tensor of that name is in the source.
Result<TensorAndRest> SplitWhere(const std::vector<oracle::TensorLocation>& source,
                                 const std::string& where);

/// \error kBadInput if the model does not load `name`: damage to it could not be seen.
Status CheckLoaded(const Case& test_case, const std::vector<oracle::TensorLocation>& source,
                   const std::string& name);

/// \error kBadInput if the run reads a source of another format.
Status CheckFormat(const Case& test_case, const std::string& format);

/// "WHAT" or "WHAT:RANK" of a WHERE.
struct WhatAndRank {
  std::string what;
  int64_t rank = 0;  ///< the last rank if none is given
};
/// \error kBadInput if what follows the last colon is no rank of the case's world.
Result<WhatAndRank> SplitRank(const Case& test_case, const std::string& where);

/// A whole number below `limit`. \error kBadInput naming `what`.
Result<int64_t> ParseIndex(const std::string& text, int64_t limit, const std::string& what);

}  // namespace shardproof
