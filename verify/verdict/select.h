// What a property reads: phases, stages and tensors, with a reason given for all that is not there,
// so that nothing is passed over in silence. And findings that many ranks share.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "verify/verdict/image.h"
#include "verify/verdict/property.h"

namespace shardproof {

/// The phase if it ran and has ranks. Else null; the judgement then says why: a skip where the
/// phase states its reason or the case does not ask for it, inconclusive where it should be there.
const PhaseEvidence* PhaseToJudge(const Evidence& evidence, Phase phase, Judgement& judgement);

/// Whether the reference pipeline ran, and not a framework.
bool IsReference(const Evidence& evidence);

/// Whether any fault struck a rank of the phase.
bool WasStruck(const PhaseEvidence& phase);

/// The phases that load a model and compare values: `values`, which must be there, and `plain` and
/// `resume` if they ran.
std::vector<const PhaseEvidence*> LoadPhases(const Evidence& evidence, Judgement& judgement);

/// The stage at which the phase has its model whole for the first time: `restored` where it
/// resumes, else `ready`.
Stage FirstWholeStage(const PhaseEvidence& phase);

/// Whether any rank reached the stage. Ranks that did not, although others did, make the judgement
/// inconclusive, as does a stage record that is cut short.
bool StageReached(const PhaseEvidence& phase, const StageKey& stage, Judgement& judgement);

/// The same, and inconclusive too if no rank reached it.
bool StageToJudge(const PhaseEvidence& phase, const StageKey& stage, Judgement& judgement);

/// Whether any rank showed a step; inconclusive if none did.
bool StepsToJudge(const PhaseEvidence& phase, Judgement& judgement);

/// The stages of `ready` and `restored` that the phase has. A phase that has neither is
/// inconclusive, as is a `values` or `plain` phase without `ready`. (Whether `restored` should be
/// there is for the checkpoint properties to say.)
std::vector<std::string> FinalStages(const PhaseEvidence& phase, Judgement& judgement);

/// The phases in which optimizer steps may be taken, as far as they ran: the training phases and,
/// of a script that was observed, `values`. That there is none is for the training properties to
/// say.
std::vector<const PhaseEvidence*> TrainPhases(const Evidence& evidence);

/// Keys of the stages of such a phase at which everything must have its value, in the order in
/// which they were reached; of the model in `values` only those that FinalStages does not give.
/// \param of "model" or "optimizer"
std::vector<std::string> TrainStages(const PhaseEvidence& phase, const std::string& of,
                                     Judgement& judgement);

/// The same stages of all these phases, of the model and of the optimizer.
struct PhaseStage {
  const PhaseEvidence* phase;
  std::string stage;
};
std::vector<PhaseStage> AllTrainStages(const Evidence& evidence, Judgement& judgement);

/// The stage, whatever its step. \returns its key, or "" if no rank reached it.
std::string KeyOf(const PhaseEvidence& phase, Stage stage, const std::string& of);

/// The stage at one step. \returns likewise.
std::string KeyAt(const PhaseEvidence& phase, Stage stage, int64_t step, const std::string& of);

/// The last step at which any rank reached the stage with the model; nothing if none did.
std::optional<int64_t> LastStepOf(const PhaseEvidence& phase, Stage stage);

/// Whether a rank came to its end: what one that did not shows no more, other properties say.
bool EndedWell(const RankEvidence& rank);
bool AllEndedWell(const PhaseEvidence& phase);

/// Whether a rank observed a "model", an "optimizer" or a "state_dict"; at one stage, if it is
/// given.
bool Shows(const RankEvidence& rank, std::string_view of, std::optional<Stage> stage = {});

/// How a rank ended, without what the launcher remarks on it: "signal 9" of "signal 9 (out of
/// memory: ...)".
std::string ExitOf(const RankEvidence& rank);

/// Whether the fault is on record of any rank of any phase.
bool HasStruck(const FaultCase& fault, const Evidence& evidence);

/// Every tensor that any rank has at the stage, sorted.
std::vector<std::string> TensorNames(const PhaseEvidence& phase, const StageKey& stage);

/// A tensor on one rank at a stage, or nulls.
struct TensorOnRank {
  const TensorState* state = nullptr;
  const TensorDescriptor* descriptor = nullptr;
};
TensorOnRank FindTensor(const RankEvidence& rank, const StageKey& stage, const std::string& tensor);

/// What an undefined tensor means to a property: that its claim does not hold, or that another
/// property (loading.all_defined) has to say what is wrong before this one can judge.
enum class Undefined { kFinding, kInconclusive };

/// Notes a tensor whose bytes could not be read: nothing can be said of its value.
void NoteUnreadable(const PhaseEvidence& phase, const StageKey& stage, const std::string& tensor,
                    const std::string& why, Judgement& judgement);

/// The tensor's replicas at the stage that are defined. Those that are not go to the judgement.
std::vector<Image> DefinedImages(const PhaseEvidence& phase, const StageKey& stage,
                                 const std::string& tensor, Judgement& judgement,
                                 Undefined undefined = Undefined::kInconclusive);

/// A finding whose first line is "<tensor> at `<stage>` of phase <phase> on <ranks>: <what>".
Finding FindingAt(const PhaseEvidence& phase, const StageKey& stage, const std::string& tensor,
                  const std::string& kind, const std::vector<int64_t>& ranks,
                  const std::string& what, Facts facts = {});

/// Collects what is wrong rank by rank and makes one finding of what many ranks have in common.
class FindingsByRank {
 public:
  FindingsByRank(const PhaseEvidence& phase, StageKey stage)
      : phase_(phase), stage_(std::move(stage)) {}

  /// \param ranks on which `what` is wrong with `tensor`
  void Add(const std::string& tensor, const std::string& kind, const std::string& what,
           const std::vector<int64_t>& ranks, const Facts& facts = {});
  /// Adds the findings, by tensor, to the judgement.
  void Report(Judgement& judgement) const;

 private:
  const PhaseEvidence& phase_;
  StageKey stage_;
  struct Place {
    std::vector<int64_t> ranks;
    Facts facts;
  };
  std::map<std::tuple<std::string, std::string, std::string>, Place> places_;
};

}  // namespace shardproof
