// training.optimizer_live: what an optimizer updates is what the model computes with.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "verify/verdict/expectation.h"
#include "verify/verdict/holders.h"
#include "verify/verdict/optimizers_alike.h"
#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"

namespace shardproof::training::optimizer_live {
namespace {

/// A trainable parameter of the model under all its names.
struct Trainable {
  std::vector<std::string> names;
  std::vector<int64_t> shape;
  int64_t held = 0;  ///< by how many places of the optimizer
};

std::vector<Trainable> TrainablesOf(const OracleRecord& oracle, const RankEvidence& rank,
                                    const StageRecord& model) {
  std::vector<Trainable> trainables;
  std::map<std::string, size_t> place_of;  // by the first name of a tie
  for (const auto& [name, state] : model.tensors) {
    const TensorDescriptor& descriptor = rank.Descriptor(state);
    if (descriptor.kind != "parameter" || !descriptor.requires_grad) continue;
    // A lazy one has no elements yet.
    if (!state.unreadable.empty() && descriptor.owned.empty()) continue;
    const auto [place, is_new] =
        place_of.emplace(TieGroup(oracle, name).front(), trainables.size());
    if (is_new) trainables.push_back({.names = {}, .shape = descriptor.shape});
    trainables[place->second].names.push_back(name);
  }
  return trainables;
}

/// The FQN that an object of the optimizer had at an earlier stage, of those that it holds in place
/// of the model's own.
std::set<std::string> StaleNames(const OptimizerRecord& optimizer) {
  std::set<std::string> names;
  for (const Stranger& stranger : optimizer.strangers) names.insert(stranger.was);
  return names;
}

/// Whether an optimizer holds what looks like the parameter as it once was: of its shape. ZeRO
/// written by hand holds slices of flat copies instead, which have other shapes.
bool HoldsOneLike(const OptimizerRecord& optimizer, const Trainable& trainable) {
  return std::any_of(optimizer.strangers.begin(), optimizer.strangers.end(),
                     [&](const Stranger& each) { return each.shape == trainable.shape; });
}

/// What the optimizers of all ranks hold at a stage. Some divide the parameters among the ranks:
/// the owner of one steps it and gives it to the others, whose optimizers need not hold it.
class Division {
 public:
  Division(const PhaseEvidence& phase, const std::string& key) : phase_(phase) {
    for (const RankEvidence& rank : phase.ranks) {
      const StageRecord* record = rank.Stage(key);
      if (record == nullptr || !record->optimizer) continue;
      model_ = record->ModelKey();
      held_[rank.rank] = HeldBy(*record->optimizer);
    }
  }

  /// Whether any of the ranks that have the parameter steps it.
  bool IsStepped(int64_t rank, const std::vector<std::string>& names) const {
    for (const std::vector<int64_t>& ranks : HoldersOf(phase_, model_, names.front()).tensors) {
      if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) continue;
      return std::any_of(ranks.begin(), ranks.end(),
                         [&](int64_t each) { return held_.contains(each) && Holds(each, names); });
    }
    return false;
  }

  /// Whether others of the ranks that have the parameter step it for this one, no more of them than
  /// not, as this one steps what they do not.
  bool LeavesToOthers(int64_t rank, const std::vector<std::string>& names) const {
    for (const std::vector<int64_t>& ranks : HoldersOf(phase_, model_, names.front()).tensors) {
      if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) continue;
      std::vector<int64_t> owners;
      size_t others = 0;
      for (const int64_t each : ranks) {
        if (!held_.contains(each)) continue;
        if (Holds(each, names))
          owners.push_back(each);
        else
          ++others;
      }
      return !owners.empty() && owners.size() <= others &&
             std::all_of(owners.begin(), owners.end(),
                         [&](int64_t owner) { return HoldsMoreThan(rank, owner); });
    }
    return false;
  }

 private:
  bool Holds(int64_t rank, const std::vector<std::string>& names) const {
    const std::set<std::string>& held = held_.at(rank);
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return held.contains(name); });
  }

  /// Whether a rank holds anything that another one, which has it too, does not.
  bool HoldsMoreThan(int64_t rank, int64_t other) const {
    const RankEvidence& evidence = phase_.ranks[static_cast<size_t>(other)];
    const std::set<std::string>& held = held_.at(rank);
    return std::any_of(held.begin(), held.end(), [&](const std::string& name) {
      return !held_.at(other).contains(name) &&
             FindTensor(evidence, model_, name).descriptor != nullptr;
    });
  }

  const PhaseEvidence& phase_;
  std::string model_;
  std::map<int64_t, std::set<std::string>> held_;
};

/// An optimizer that holds them takes memory for their state, and its weight decay changes them as
/// soon as they have a gradient. Frameworks are often given all parameters, which is their users'
/// own matter.
void CheckFrozen(const RankEvidence& rank, const StageRecord& model,
                 const std::map<std::string, int64_t>& held, FindingsByRank& findings,
                 Judgement& judgement) {
  for (const auto& [name, state] : model.tensors) {
    const TensorDescriptor& descriptor = rank.Descriptor(state);
    if (descriptor.kind == "parameter" && descriptor.requires_grad) continue;
    judgement.Compared();
    if (!held.contains(name)) continue;
    findings.Add(name, "frozen", "it is not trainable, and a group of the optimizer holds it",
                 {rank.rank});
  }
}

/// Whether the case has its steps train what is frozen, and freeze it again, before this stage: as
/// with torch.optim, the optimizer holds it still.
bool IsFrozenAgain(const TrainingCase& training, const StageRecord& record) {
  return training.unfreeze_after > 0 && training.unfrozen_steps > 0 &&
         record.step > training.unfreeze_after + training.unfrozen_steps;
}

/// A job may step a parameter by one optimizer and then by another, or by both by mistake.
void TellSeveral(const RankEvidence& rank, const StageRecord& model,
                 const std::map<std::string, std::map<std::string, int64_t>>& by_optimizer,
                 Judgement& judgement) {
  for (const auto& [name, by] : by_optimizer) {
    if (by.size() < 2) continue;
    judgement.Inconclusive(
        fmt::format("on rank {} {} optimizers hold {} at `{}`: whether both are meant to step it "
                    "is not known",
                    rank.rank, by.size(), name, model.Key()));
  }
}

/// A script may train a part of its model, such as a new head, and freeze nothing.
void TellUntrained(const std::vector<std::string>& names, const StageRecord& record,
                   Judgement& judgement) {
  if (names.empty()) return;
  judgement.Inconclusive(
      fmt::format("no rank's optimizer holds {} at `{}`: whether the job trains this, or a copy of "
                  "it, is not known",
                  ListSome(names), record.Key()));
}

/// \param explained  earlier names of objects that were told of already
void CheckStrangers(const Evidence& evidence, const RankEvidence& rank, const StageRecord& record,
                    const std::set<std::string>& explained, bool holds_all,
                    FindingsByRank& findings, Judgement& judgement) {
  const Stranger* first = nullptr;
  int64_t unexplained = 0;
  for (const Stranger& stranger : record.optimizer->strangers) {
    judgement.Compared();
    if (explained.contains(stranger.was)) continue;
    if (unexplained++ == 0 || first->was.empty()) first = &stranger;
  }
  if (first == nullptr) return;
  // A script has optimizers of its own making, which may step parameters of a loss, too.
  if (evidence.WhyCannot("train") && holds_all && first->was.empty()) {
    judgement.Inconclusive(
        fmt::format("on rank {} {} of what the optimizer holds at `{}` is none of the model's, "
                    "such as parameters of a loss, or slices of flat copies: it was not observed",
                    rank.rank, unexplained, record.Key()));
    return;
  }
  findings.Add(first->was, "stranger",
               fmt::format("{} of what the optimizer holds is none of the model's, first parameter "
                           "{} of group {}, of shape {}",
                           unexplained, first->index, first->group, ShapeText(first->shape)),
               {rank.rank});
}

/// \param record  the optimizer's, at the stage of `model`
void CheckRank(const Evidence& evidence, const Division& division, const RankEvidence& rank,
               const StageRecord& model, const StageRecord& record, FindingsByRank& findings,
               Judgement& judgement) {
  const OptimizerRecord& optimizer = *record.optimizer;
  std::map<std::string, int64_t> held;  // by the one optimizer that holds it most often
  std::map<std::string, std::map<std::string, int64_t>> by_optimizer;
  for (const OptimizerGroup& group : optimizer.groups) {
    for (const std::string& name : group.parameters) {
      held[name] = std::max(held[name], ++by_optimizer[name][OptimizerOf(group)]);
    }
  }
  TellSeveral(rank, model, by_optimizer, judgement);
  if (IsReference(evidence) && !IsFrozenAgain(evidence.test_case.training, record))
    CheckFrozen(rank, model, held, findings, judgement);
  const std::set<std::string> stale = StaleNames(optimizer);
  std::set<std::string> explained;
  bool holds_all = true;
  std::vector<std::string> untrained;
  for (Trainable& trainable : TrainablesOf(evidence.oracle, rank, model)) {
    judgement.Compared();
    const std::string& name = trainable.names.front();
    bool was_held = false;
    for (const std::string& each : trainable.names) {
      // One object under several names is held under all of them at once.
      trainable.held = std::max(trainable.held, held[each]);
      was_held = was_held || stale.contains(each);
      if (stale.contains(each)) explained.insert(each);
    }
    if (trainable.held == 0 && !was_held && division.LeavesToOthers(rank.rank, trainable.names))
      continue;
    if (trainable.held == 0 && !was_held && evidence.WhyCannot("train") &&
        !HoldsOneLike(optimizer, trainable) && !division.IsStepped(rank.rank, trainable.names)) {
      untrained.push_back(name);
      continue;
    }
    if (trainable.held == 0) {
      holds_all = false;
      findings.Add(name, "not-held",
                   was_held ? "the optimizer holds the object that it was at an earlier stage, "
                              "which the model has no more: its steps change nothing"
                            : "it is trainable, and no group of the optimizer holds it",
                   {rank.rank});
    } else if (trainable.held > 1) {
      findings.Add(name, "held-twice",
                   fmt::format("the optimizer holds it {} times", trainable.held), {rank.rank});
    }
  }
  TellUntrained(untrained, record, judgement);
  CheckStrangers(evidence, rank, record, explained, holds_all, findings, judgement);
}

/// Of optimizers that nobody said are the model's: they may step copies or stretches of what it
/// has, or what it had.
void TellStrangers(const OracleRecord& oracle, const RankEvidence& rank, const StageRecord& record,
                   Judgement& judgement) {
  const StageRecord* model = rank.Stage(record.ModelKey());
  if (model == nullptr || record.optimizer->strangers.empty()) return;
  const std::set<std::string> held = HeldBy(*record.optimizer);
  std::vector<std::string> left;
  for (const Trainable& trainable : TrainablesOf(oracle, rank, *model)) {
    const auto& names = trainable.names;
    const auto is_held = [&](const std::string& name) { return held.contains(name); };
    if (std::none_of(names.begin(), names.end(), is_held)) left.push_back(names.front());
  }
  if (left.empty()) return;
  judgement.Inconclusive(
      fmt::format("on rank {} at `{}` no optimizer holds {}, and one holds {} that are none of the "
                  "model's: whether its steps reach the model is not known",
                  rank.rank, record.Key(), ListSome(left), record.optimizer->strangers.size()));
}

/// At every stage at which an optimizer is observed, it holds each trainable parameter of the
/// model, the very object, exactly once, and nothing that is not the model's, but for what an
/// observed script may have besides; that of the reference nothing that was never trained. Ranks
/// may divide the parameters among them.
void Check(const Evidence& evidence, Judgement& judgement) {
  for (const PhaseEvidence& phase : evidence.phases) {
    std::vector<std::string> keys;  // in the order of the stages
    std::map<std::string, FindingsByRank> findings;
    std::map<std::string, Division> divisions;
    for (const RankEvidence& rank : phase.ranks) {
      for (const StageRecord& record : rank.stages) {
        if (!record.optimizer) continue;
        const std::string key = record.Key();
        if (!record.optimizer->claims) {
          TellStrangers(evidence.oracle, rank, record, judgement);
          continue;
        }
        const Division& division = divisions.try_emplace(key, phase, key).first->second;
        if (findings.emplace(key, FindingsByRank(phase, key)).second) keys.push_back(key);
        const StageRecord* model = rank.Stage(record.ModelKey());
        if (model == nullptr) {
          judgement.Inconclusive(fmt::format("rank {} of phase {} observed no model at `{}`",
                                             rank.rank, phase.name(), key));
          continue;
        }
        CheckRank(evidence, division, rank, *model, record, findings.at(key), judgement);
      }
    }
    for (const std::string& key : keys) findings.at(key).Report(judgement);
  }
  judgement.Skipped("no optimizer was observed");
}

const PropertyRegistration kRegistration{{
    .id = "training.optimizer_live",
    .claim = "The optimizer holds every trainable parameter of the model once, and nothing else.",
    .reads = {{EveryPhase(), {}, "optimizers"}},
    .tolerance = "none: identity",
    .source = "modelscope/twinkle#117 (an optimizer made before sharding has to be bound anew); "
              "torch.distributed.fsdp.fully_shard tutorial: the optimizer is made after "
              "sharding",
    .killed_by = {"training.optimizer_not_rebound", "training.optimizer_holds_frozen",
                  "loading.parameters_replaced", "training.unfrozen_not_held",
                  "subject.stale_optimizer", "subject.optimizer_misses_a_parameter"},
    .check = Check,
    .case_needs = R"({"optimizer": "before-sharding"})",
}};

}  // namespace
}  // namespace shardproof::training::optimizer_live
