// training.steps_act: what an optimizer step must change has changed, and nothing frozen has.
// verify/decisions/0033 says what must change.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "verify/verdict/locate.h"
#include "verify/verdict/optimizers_alike.h"
#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"

namespace shardproof::training::steps_act {
namespace {

bool IsParameter(const TensorDescriptor& descriptor, bool trainable) {
  return descriptor.kind == "parameter" && descriptor.requires_grad == trainable;
}

/// What a rank saw of one step: the model after it and when it was last observed before.
struct Step {
  const RankEvidence* rank = nullptr;
  const StageRecord* before = nullptr;
  const StageRecord* after = nullptr;
  const StageRecord* optimizer = nullptr;  ///< after the step; null: it was not observed

  const StepsRecord* record() const {
    return optimizer != nullptr && optimizer->steps ? &*optimizer->steps : nullptr;
  }
  /// Whether the tensor is there, defined and the same at both; nothing where that is not known.
  std::optional<bool> IsSame(const std::string& name) const {
    const auto was = before->tensors.find(name);
    const auto is = after->tensors.find(name);
    if (was == before->tensors.end() || is == after->tensors.end()) return std::nullopt;
    const TensorState& earlier = was->second;
    const TensorState& later = is->second;
    if (earlier.content != Content::kDefined || later.content != Content::kDefined) return {};
    if (!earlier.unreadable.empty() || !later.unreadable.empty()) return std::nullopt;
    if (earlier.coverage != later.coverage) return std::nullopt;
    return earlier.digest == later.digest;
  }
};

bool IsWhole(const StageRecord& record) {
  const std::optional<Stage> stage = FindStage(record.name);
  return record.of == "model" && record.complete && stage && FactsOf(*stage).is_whole;
}

bool IsStep(const StageRecord& record) {
  return IsWhole(record) && FactsOf(*FindStage(record.name)).is_step;
}

/// The steps that a rank saw. The stage that its own record names is what it was held against.
std::vector<Step> StepsOf(const RankEvidence& rank) {
  std::vector<Step> steps;
  const StageRecord* last = nullptr;
  for (const StageRecord& record : rank.stages) {
    if (!IsWhole(record)) continue;
    Step step{&rank, last, &record, rank.Stage(record.Key() + ".optimizer")};
    if (const StepsRecord* said = step.record()) {
      const StageRecord* since = rank.Stage(said->since);
      step.before = since != nullptr && since->complete ? since : nullptr;
    }
    if (IsStep(record) && step.before != nullptr) steps.push_back(step);
    last = &record;
  }
  return steps;
}

/// Whether some group of the optimizer was told a rate that is not 0, or nobody knows. What only
/// other ranks step has no options here.
bool HasRate(const StageRecord* optimizer) {
  if (optimizer == nullptr || !optimizer->optimizer) return true;
  const auto& groups = optimizer->optimizer->groups;
  const auto is_known = [](const auto& group) { return !group.options.empty(); };
  if (std::none_of(groups.begin(), groups.end(), is_known)) return true;
  return std::any_of(groups.begin(), groups.end(), [&](const auto& group) {
    if (!is_known(group)) return false;
    const auto lr = group.options.find("lr");
    if (lr == group.options.end()) return true;
    char* end = nullptr;
    const double rate = std::strtod(lr->second.c_str(), &end);
    return end == lr->second.c_str() || rate != 0;
  });
}

/// Something that did not change and had to, on all ranks that say so.
struct Still {
  std::vector<int64_t> ranks;
  std::string what;               ///< although what it did not change, as the first of them says it
  uint64_t elements = 0;          ///< on all of them
  std::optional<uint64_t> index;  ///< as the first of them says it
  Facts facts;
};

/// One stage after a step, on all ranks.
class StepCheck {
 public:
  StepCheck(const PhaseEvidence& phase, std::string stage, const OracleRecord& oracle,
            Judgement& judgement)
      : phase_(phase), stage_(std::move(stage)), judgement_(judgement) {
    const auto& twin = oracle.twin_steps;
    is_twins_ = std::any_of(twin.begin(), twin.end(),
                            [&](const TwinStep& step) { return step.stage.text() == stage_; });
  }

  void Add(const Step& step) {
    before_ = step.before->Key();
    const StepsRecord* record = step.record();
    for (const auto& [name, state] : step.after->tensors) {
      if (!IsParameter(step.rank->Descriptor(state), true)) continue;
      const std::optional<bool> same = step.IsSame(name);
      if (!same || state.coverage == Digest()) continue;  // a rank without a part of it
      trainable_.insert(name);
      changed_ = changed_ || !*same;
      if (record == nullptr || record->taken > 0) judgement_.Compared();
    }
    AddStale(step);
    if (record != nullptr) return AddRecorded(step, *record);
    // Of a subject the stage itself says that there was a step.
    if (!phase_.facts().trains) return;
    const bool is_known = step.optimizer != nullptr && step.optimizer->optimizer.has_value();
    is_unknown_ = is_unknown_ || !is_known;
    is_claimed_ = is_claimed_ || (is_known && HasRate(step.optimizer) &&
                                  HasRate(step.rank->Stage(before_ + ".optimizer")));
  }

  void Report() const {
    if (!unsure_.empty() && !parameters_.empty()) {
      return judgement_.Inconclusive(fmt::format(
          "{} did not change between `{}` and `{}` of phase {}, as a step must have changed it, "
          "but {}",
          parameters_.begin()->first, before_, stage_, phase_.name(), unsure_));
    }
    for (const auto& [name, still] : state_) Found(stage_ + ".optimizer", name, "stuck", still);
    const bool is_idle = !trainable_.empty() && !changed_ && (is_claimed_ || !parameters_.empty());
    if (is_idle) {
      return judgement_.Found(
          FindingAt(phase_, stage_, "", "idle", {},
                    fmt::format("none of {} trainable parameters is another than at `{}`",
                                trainable_.size(), before_),
                    {.against = {Against::What::kEarlier, phase_.phase, before_}}));
    }
    for (const auto& [name, still] : parameters_) Found(stage_, name, "idle", still);
    if (!is_unknown_ || changed_ || trainable_.empty()) return;
    judgement_.Inconclusive(
        fmt::format("no trainable parameter is at `{}` of phase {} another than at `{}`, and the "
                    "optimizer, whose rate may be 0, was not observed",
                    stage_, phase_.name(), before_));
  }

 private:
  using Stills = std::map<std::string, Still>;

  /// Parameters of which the optimizer holds an object that the model has no more.
  void AddStale(const Step& step) {
    if (step.optimizer == nullptr || !step.optimizer->optimizer || !HasRate(step.optimizer)) return;
    const StepsRecord* record = step.record();
    if (record == nullptr ? !phase_.facts().trains : record->taken == 0) return;
    const std::set<std::string> held = HeldBy(*step.optimizer->optimizer);
    for (const Stranger& stranger : step.optimizer->optimizer->strangers) {
      const auto state = step.after->tensors.find(stranger.was);
      if (state == step.after->tensors.end() || held.contains(stranger.was)) continue;
      if (!IsParameter(step.rank->Descriptor(state->second), true)) continue;
      if (!step.IsSame(stranger.was).value_or(false)) continue;
      Add(parameters_, step,
          {.name = stranger.was,
           .detail = "a step was taken: the optimizer holds the object that it was at an earlier "
                     "stage, which the model has no more"});
    }
  }

  void AddRecorded(const Step& step, const StepsRecord& record) {
    if (!record.unsure.empty()) unsure_ = record.unsure;
    for (const StillRecord& still : record.still) {
      if (still.why != "undecided") {
        Add(still.why == "due" ? parameters_ : state_, step, still);
        continue;
      }
      // The plain twin has taken that step, and says itself what it could not judge.
      if (is_twins_) continue;
      judgement_.Inconclusive(
          fmt::format("{} is at `{}` of phase {} what it was at `{}`, and whether it had to change "
                      "is not known: {}",
                      still.name, stage_, phase_.name(), before_, still.detail));
    }
  }

  void Add(Stills& stills, const Step& step, const StillRecord& record) const {
    const Facts facts{.against = {Against::What::kEarlier, phase_.phase, before_}};
    Still& still = stills.try_emplace(record.name, Still{{}, record.detail, 0, record.index, facts})
                       .first->second;
    still.ranks.push_back(step.rank->rank);
    still.elements += record.elements;
  }

  void Found(const std::string& stage, const std::string& name, const char* kind,
             const Still& still) const {
    const std::string at = still.index ? fmt::format(" at element {}", *still.index) : "";
    const std::string many =
        still.elements > 0 ? fmt::format(", and {} elements had to change", still.elements) : "";
    judgement_.Found(FindingAt(phase_, stage, name, kind, still.ranks,
                               fmt::format("it is bit for bit what it was at `{}`, although {}{}{}",
                                           before_, still.what, at, many),
                               still.facts));
  }

  const PhaseEvidence& phase_;
  const std::string stage_;
  Judgement& judgement_;
  bool is_twins_ = false;  ///< whether training.steps_as_twin judges it too
  std::string before_;
  std::string unsure_;
  std::set<std::string> trainable_;
  bool changed_ = false;
  bool is_claimed_ = false;
  bool is_unknown_ = false;
  Stills parameters_;
  Stills state_;
};

/// Whether the plain twin has seen that the step made it an average of a trainable parameter.
bool IsAverage(const OracleRecord& oracle, const std::string& stage, const std::string& name) {
  return std::any_of(oracle.twin_steps.begin(), oracle.twin_steps.end(), [&](const TwinStep& step) {
    const auto& names = step.averages;
    return step.stage.text() == stage && std::find(names.begin(), names.end(), name) != names.end();
  });
}

/// No parameter that does not require a gradient changes, but one that follows a trainable one, as
/// a momentum encoder's. A script may change what it has frozen as it likes: it may hold an
/// average.
void CheckFrozen(const Evidence& evidence, const PhaseEvidence& phase, Judgement& judgement) {
  std::string before;
  for (const std::string& stage : TrainStages(phase, "model", judgement)) {
    const bool is_step = IsAt(stage, Stage::kStepped) || IsAt(stage, Stage::kResumed);
    if (is_step && !before.empty()) {
      for (const std::string& name : TensorNames(phase, stage)) {
        const std::vector<Image> earlier = DefinedImages(phase, before, name, judgement);
        const std::vector<Image> later = DefinedImages(phase, stage, name, judgement);
        if (earlier.empty() || later.empty()) continue;
        if (!IsParameter(*later[0].parts[0].descriptor, false)) continue;
        judgement.Compared(later.size());
        if (IsAverage(evidence.oracle, stage, name)) continue;
        const Against against{Against::What::kFrozen, phase.phase, before};
        const Comparison comparison{evidence, phase, stage, name, against, {}};
        for (Finding& finding : CompareAll(comparison, earlier[0], later)) {
          judgement.Found(std::move(finding));
        }
      }
    }
    before = stage;
  }
}

/// A tensor on a rank at a stage.
struct Value {
  int64_t identity = -1;
  std::string digest;  ///< of the rank's part, and of which part that is
  bool operator==(const Value&) const = default;
};
using Values = std::map<std::pair<int64_t, std::string>, Value>;  ///< by rank and name

/// All ranks at a stage.
struct Moment {
  std::string key;
  int64_t step = 0;
  bool is_restored = false;
  bool is_step = false;
  bool is_judged = true;  ///< whether steps are known to have been taken before it
  std::string unsure;     ///< as in StepsRecord
  Values values;          ///< of trainable parameters
  Values state;           ///< of the optimizer: all but counters of steps
};

void AddMoment(const PhaseEvidence& phase, const RankEvidence& rank, const StageRecord& record,
               Moment& moment) {
  const Stage stage = *FindStage(record.name);
  moment.key = record.Key();
  moment.step = record.step;
  moment.is_restored = stage == Stage::kRestored;
  moment.is_step = FactsOf(stage).is_step;
  for (const auto& [name, state] : record.tensors) {
    const TensorDescriptor& descriptor = rank.Descriptor(state);
    if (!IsParameter(descriptor, true) || state.content != Content::kDefined) continue;
    moment.values[{rank.rank, name}] = {descriptor.identity,
                                        state.digest.Hex() + state.coverage.Hex()};
  }
  const StageRecord* optimizer = rank.Stage(record.Key() + ".optimizer");
  const StepsRecord* steps = nullptr;
  if (optimizer != nullptr) {
    for (const auto& [name, state] : optimizer->tensors) {
      if (!name.ends_with(".step")) moment.state[{rank.rank, name}] = {-1, state.digest.Hex()};
    }
    if (optimizer->steps) steps = &*optimizer->steps;
  }
  if (steps != nullptr && !steps->unsure.empty()) moment.unsure = steps->unsure;
  const bool is_known = steps != nullptr ? steps->taken > 0 : phase.facts().trains;
  moment.is_judged = moment.is_judged && is_known;
}

/// Stages at which the whole model was seen, in their order.
std::vector<Moment> MomentsOf(const PhaseEvidence& phase) {
  std::vector<Moment> moments;
  for (const RankEvidence& rank : phase.ranks) {
    for (const StageRecord& record : rank.stages) {
      if (!IsWhole(record)) continue;
      const std::string key = record.Key();
      auto found = std::find_if(moments.begin(), moments.end(),
                                [&](const Moment& each) { return each.key == key; });
      if (found == moments.end()) found = moments.emplace(moments.end());
      AddMoment(phase, rank, record, *found);
    }
  }
  return moments;
}

/// Whether both are of the same objects, whatever values these have.
bool IsOfSame(const Values& a, const Values& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& one, const auto& other) {
    return one.first == other.first && one.second.identity == other.second.identity;
  });
}

/// The latest stage before `last`, and not before `first`, with the values that it has and others
/// between; null if there is none.
const Moment* EarlierLike(const std::vector<Moment>& moments, size_t first, size_t last) {
  const Moment& later = moments[last];
  bool moved = false;
  for (size_t i = last; i-- > first;) {
    const Moment& earlier = moments[i];
    if (!IsOfSame(earlier.values, later.values)) return nullptr;
    const bool is_same = earlier.values == later.values;
    if (is_same && moved && earlier.step < later.step) return &earlier;
    moved = moved || !is_same;
  }
  return nullptr;
}

/// After steps that changed the model, it is not what it was before them, bit for bit.
void CheckReturns(const PhaseEvidence& phase, Judgement& judgement) {
  const std::vector<Moment> moments = MomentsOf(phase);
  size_t begin = 0;
  for (size_t last = 0; last < moments.size(); ++last) {
    const Moment& later = moments[last];
    if (later.is_restored) begin = last;
    if (!later.is_step || !later.is_judged || later.values.empty()) continue;
    judgement.Compared();
    const Moment* earlier = EarlierLike(moments, begin, last);
    if (earlier == nullptr) continue;
    const std::string what = fmt::format(
        "all trainable parameters are bit for bit what they were at `{}`, from which steps had "
        "changed them",
        earlier->key);
    // Steps whose gradients depend on the values alone may come back to them, with their state.
    const bool may_circle = later.state.empty() || earlier->state == later.state;
    if (!may_circle && later.unsure.empty()) {
      judgement.Found(FindingAt(phase, later.key, "", "returned", {}, what,
                                {.against = {Against::What::kEarlier, phase.phase, earlier->key}}));
      continue;
    }
    judgement.Inconclusive(fmt::format(
        "at `{}` of phase {} {}, but {}", later.key, phase.name(), what,
        may_circle ? "no state of the optimizer tells that the steps did not lead in a circle"
                   : later.unsure));
  }
}

void CheckPhase(const Evidence& evidence, const PhaseEvidence& phase, Judgement& judgement) {
  std::vector<std::string> keys;
  std::map<std::string, StepCheck> checks;
  for (const RankEvidence& rank : phase.ranks) {
    for (const Step& step : StepsOf(rank)) {
      const std::string key = step.after->Key();
      const auto [check, is_new] = checks.try_emplace(key, phase, key, evidence.oracle, judgement);
      if (is_new) keys.push_back(key);
      check->second.Add(step);
    }
  }
  for (const std::string& key : keys) checks.at(key).Report();
  CheckReturns(phase, judgement);
}

/// Whether a rank of a script that was observed has on record what steps did.
bool HasSteps(const PhaseEvidence& phase) {
  return std::any_of(phase.ranks.begin(), phase.ranks.end(), [](const RankEvidence& rank) {
    return std::any_of(rank.stages.begin(), rank.stages.end(),
                       [](const StageRecord& record) { return record.steps.has_value(); });
  });
}

/// After a step every trainable parameter, and the optimizer's state of it, has changed where the
/// optimizer's formula says that it must; no parameter that does not require a gradient has.
void Check(const Evidence& evidence, Judgement& judgement) {
  const PhaseEvidence* values = evidence.Phase(Phase::kValues);
  const bool is_script = values != nullptr && HasSteps(*values);
  if (is_script) {
    CheckPhase(evidence, *values, judgement);
    judgement.Skipped("no step was taken between two stages that were observed");
    return;
  }
  if (PhaseToJudge(evidence, Phase::kTrain, judgement) == nullptr) return;
  for (const PhaseEvidence* phase : TrainPhases(evidence)) {
    if (phase->phase != Phase::kTrain && phase->phase != Phase::kAgain) continue;
    CheckFrozen(evidence, *phase, judgement);
    // training.steps_by_formula says what a step of the reference makes.
    if (!IsReference(evidence)) CheckPhase(evidence, *phase, judgement);
    (void)StepsToJudge(*phase, judgement);
  }
  judgement.Skipped(IsReference(evidence) ? "the model has no frozen parameter"
                                          : "the model has no parameter");
}

const PropertyRegistration kRegistration{{
    .id = "training.steps_act",
    .claim = "Every optimizer step changes what its formula says that it must, does not bring old "
             "values back, and changes no frozen parameter.",
    .reads = {{{Phase::kTrain, Phase::kAgain},
               {Stage::kReady, Stage::kStepped, Stage::kRestored, Stage::kResumed},
               "what steps did, of a script that was observed"}},
    .tolerance = "bit-exact for what is frozen; of what must change, updates of fewer than 4 ulps "
                 "and a twentieth of what they are made of are left out",
    .source = "torch.optim documentation: a step updates the parameters that the optimizer "
              "holds",
    .killed_by = {"subject.stale_optimizer_steps", "subject.steps_change_frozen",
                  "subject.stale_parameter_steps", "subject.parameter_put_back",
                  "subject.state_not_written_back", "subject.steps_return"},
    .check = Check,
}};

}  // namespace
}  // namespace shardproof::training::steps_act
