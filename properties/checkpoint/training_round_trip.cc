// checkpoint.training_round_trip: a job that is resumed starts from the very state that was saved.
#include <fmt/format.h>

#include <map>
#include <set>

#include "verify/verdict/locate.h"
#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"

namespace shardproof::checkpoint::training_round_trip {
namespace {

constexpr const char* kParts[] = {"model", "optimizer"};

/// FQN -> the options of its group.
using Options = std::map<std::string, std::map<std::string, std::string>>;

/// Adds those that are not there yet. What only other ranks step has none here.
void AddOptionsOf(const OptimizerRecord& record, Options& options) {
  for (const OptimizerGroup& group : record.groups) {
    if (group.options.empty()) continue;
    for (const std::string& name : group.parameters) options.emplace(name, group.options);
  }
}

std::string ValueOr(const std::map<std::string, std::string>& map, const std::string& key) {
  const auto found = map.find(key);
  return found == map.end() ? "absent" : found->second;
}

/// Keys of either, each held against the other.
void CompareMaps(const std::map<std::string, std::string>& saved,
                 const std::map<std::string, std::string>& restored, const Against& against,
                 const std::string& tensor, const std::string& kind, int64_t rank,
                 FindingsByRank& findings, Judgement& judgement) {
  std::set<std::string> keys;
  for (const auto& [key, value] : saved) keys.insert(key);
  for (const auto& [key, value] : restored) keys.insert(key);
  for (const std::string& key : keys) {
    judgement.Compared();
    const std::string expected = ValueOr(saved, key);
    const std::string seen = ValueOr(restored, key);
    if (seen == expected) continue;
    findings.Add(tensor.empty() ? key : tensor, kind,
                 fmt::format("its {} is {}, it was {} when it was saved",
                             tensor.empty() ? "state" : key, seen, expected),
                 {rank}, {.against = against, .option = tensor.empty() ? "" : key});
  }
}

class RestoredCheck {
 public:
  RestoredCheck(const Evidence& evidence, const PhaseEvidence& from, const PhaseEvidence& to,
                Judgement& judgement)
      : evidence_(evidence), from_(from), to_(to), judgement_(judgement) {}

  void Run() {
    for (const char* of : kParts) {
      const std::string saved = SavedKey(of);
      const std::string restored = KeyOf(to_, Stage::kRestored, of);
      if (!IsThere(from_, saved, Stage::kSaved, of) ||
          !IsThere(to_, restored, Stage::kRestored, of))
        continue;
      std::set<std::string> names;
      for (const std::string& name : TensorNames(from_, saved)) names.insert(name);
      for (const std::string& name : TensorNames(to_, restored)) names.insert(name);
      for (const std::string& name : names) CheckTensor(saved, restored, name);
      CheckRanks(saved, restored);
    }
    if (generators_.size() == 1 && to_.WorldSize() > 1) {
      judgement_.NotCompared(
          "the random number generators of all ranks were in the same state when it was saved, so "
          "it cannot be told whose was restored");
    }
  }

 private:
  /// The save that was restored: the last one, unless that one is damaged. (A framework may count
  /// its steps otherwise when it saves.)
  std::string SavedKey(const char* of) {
    const auto restored = LastStepOf(to_, Stage::kRestored);
    const auto last = LastStepOf(from_, Stage::kSaved);
    const std::string same = restored ? KeyAt(from_, Stage::kSaved, *restored, of) : "";
    if (same.empty()) return last ? KeyAt(from_, Stage::kSaved, *last, of) : "";
    if (IsReference(evidence_) && evidence_.test_case.faults.empty() &&
        std::string(of) == "model") {
      judgement_.Compared();
      if (*restored != *last) {
        judgement_.Found(FindingAt(
            to_, KeyOf(to_, Stage::kRestored, of), "", "stale", {},
            fmt::format("the save after step {} was restored, but the last save is of step {}",
                        *restored, *last),
            {.step = *last}));
      }
    }
    return same;
  }

  bool IsThere(const PhaseEvidence& phase, const std::string& key, Stage stage, const char* of) {
    if (!key.empty()) return StageToJudge(phase, key, judgement_);
    judgement_.Inconclusive(fmt::format("no rank of phase {} observed the {} at `{}`", phase.name(),
                                        of, NameOf(stage)));
    return false;
  }

  void CheckTensor(const std::string& saved, const std::string& restored, const std::string& name) {
    const std::vector<Image> expected = DefinedImages(from_, saved, name, judgement_);
    const std::vector<Image> seen = DefinedImages(to_, restored, name, judgement_);
    if (IsScratch(expected)) {
      judgement_.NotCompared(fmt::format(
          "{} at `{}` was not compared: it is not saved, and steps write it", name, restored));
      return;
    }
    judgement_.Compared(1 + seen.size());
    const Against against{Against::What::kStage, from_.phase, saved};
    if (ImagesOf(to_, restored, name).empty() || ImagesOf(from_, saved, name).empty()) {
      const bool lost = ImagesOf(to_, restored, name).empty();
      judgement_.Found(FindingAt(to_, restored, name, lost ? "lost" : "extra", {},
                                 lost ? "it was saved, but not restored"
                                      : "it was not there when the checkpoint was saved",
                                 {.against = against}));
      return;
    }
    if (expected.empty() || seen.empty()) return;  // DefinedImages has said so
    const Comparison comparison{evidence_, to_, restored, name, against, {from_.phase, to_.phase}};
    for (Finding& finding : CompareWithReplicas(comparison, expected, seen)) {
      judgement_.Found(std::move(finding));
    }
  }

  /// What is no tensor: of each rank against the same rank, or, on another mesh, against the first
  /// rank that has it.
  void CheckRanks(const std::string& saved, const std::string& restored) {
    FindingsByRank findings(to_, restored);
    const Against against{Against::What::kStage, from_.phase, saved};
    const bool same = &from_ == &to_;
    const Options of_all = OptionsAt(saved);
    for (const RankEvidence& rank : to_.ranks) {
      const StageRecord* expected = from_.ranks[same ? rank.rank : 0].Stage(saved);
      const StageRecord* seen = rank.Stage(restored);
      if (expected == nullptr || seen == nullptr) continue;
      if (expected->optimizer && seen->optimizer) {
        Options own;
        if (same) AddOptionsOf(*expected->optimizer, own);
        CheckOptions(same ? own : of_all, *seen->optimizer, against, rank.rank, findings);
        if (same) {
          CompareMaps(expected->optimizer->values, seen->optimizer->values, against, "", "value",
                      rank.rank, findings, judgement_);
        }
      }
      if (same) CheckRng(*expected, *seen, rank, findings);
    }
    findings.Report(judgement_);
  }

  Options OptionsAt(const std::string& saved) {
    Options options;
    for (const RankEvidence& rank : from_.ranks) {
      const StageRecord* record = rank.Stage(saved);
      if (record != nullptr && record->optimizer) AddOptionsOf(*record->optimizer, options);
    }
    return options;
  }

  void CheckOptions(const Options& before, const OptimizerRecord& restored, const Against& against,
                    int64_t rank, FindingsByRank& findings) {
    Options after;
    AddOptionsOf(restored, after);
    for (const auto& [name, options] : before) {
      const auto found = after.find(name);
      if (found == after.end()) continue;  // training.optimizer_live says so
      CompareMaps(options, found->second, against, name, "option", rank, findings, judgement_);
    }
  }

  /// Of a job that neither keeps the state nor draws anything by it, the state means nothing.
  void CheckRng(const StageRecord& saved, const StageRecord& restored, const RankEvidence& rank,
                FindingsByRank& findings) {
    if (saved.of != "model" || saved.rng.empty() || evidence_.WhyCannot("rng")) return;
    if (!restored.keeps_rng && !DrawsOthers(saved, rank)) return;
    judgement_.Compared();
    generators_.insert(saved.rng);
    if (saved.rng == restored.rng || StepsAsBefore(saved, rank)) return;
    findings.Add("", "rng",
                 "the random number generator is in another state than when it was saved",
                 {rank.rank}, {.against = {Against::What::kStage, from_.phase, saved.Key()}});
  }

  /// Whether a step after the save draws random numbers, and the resumed one draws others. One that
  /// seeds the generator anew draws the same.
  static bool DrawsOthers(const StageRecord& saved, const RankEvidence& rank) {
    const std::string* before = &saved.rng;
    for (const StageRecord& stepped : rank.stages) {
      if (stepped.name != NameOf(Stage::kStepped) || stepped.of != "model") continue;
      if (stepped.step <= saved.step || stepped.rng.empty()) continue;
      const StageRecord* resumed =
          rank.Stage(fmt::format("{}@{}", NameOf(Stage::kResumed), stepped.step));
      const bool draws = stepped.rng != *before;
      if (draws && (resumed == nullptr || resumed->rng != stepped.rng)) return true;
      before = &stepped.rng;
    }
    return false;
  }

  /// Whether every step after the resume leaves the generator as the same step left it before. Some
  /// frameworks restore it after they have told that a job is restored.
  static bool StepsAsBefore(const StageRecord& saved, const RankEvidence& rank) {
    bool has_steps = false;
    for (const StageRecord& stepped : rank.stages) {
      if (stepped.name != NameOf(Stage::kStepped) || stepped.of != "model") continue;
      if (stepped.step <= saved.step || stepped.rng.empty()) continue;
      const StageRecord* resumed =
          rank.Stage(fmt::format("{}@{}", NameOf(Stage::kResumed), stepped.step));
      if (resumed == nullptr || resumed->rng != stepped.rng) return false;
      has_steps = true;
    }
    return has_steps;
  }

  const Evidence& evidence_;
  const PhaseEvidence& from_;
  const PhaseEvidence& to_;
  Judgement& judgement_;
  std::set<std::string> generators_;  ///< states that ranks restored to what they had saved
};

/// After a resume the model, the optimizer's state, the options of its groups and the state of
/// the random number generator are what they were when they were saved; model and optimizer
/// also on another mesh.
void Check(const Evidence& evidence, Judgement& judgement) {
  const PhaseEvidence* train = PhaseToJudge(evidence, Phase::kTrain, judgement);
  if (train == nullptr) return;
  RestoredCheck(evidence, *train, *train, judgement).Run();
  if (evidence.test_case.resume_mesh.empty()) return;
  const PhaseEvidence* resume = PhaseToJudge(evidence, Phase::kTrainResume, judgement);
  if (resume != nullptr) RestoredCheck(evidence, *train, *resume, judgement).Run();
}

const PropertyRegistration kRegistration{{
    .id = "checkpoint.training_round_trip",
    .claim =
        "A resumed job starts from the model, optimizer state, options and RNG that were saved.",
    .reads = {{{Phase::kTrain}, {Stage::kSaved, Stage::kRestored}},
              {{Phase::kTrainResume}, {Stage::kRestored}}},
    .tolerance = "bit-exact: saving and restoring move bytes",
    .source = "PrimeIntellect-ai/prime-rl#3560, NVIDIA/Megatron-LM#1359, pytorch/pytorch#6031",
    .killed_by = {"training.options_not_restored", "training.step_not_restored",
                  "training.state_by_position", "training.masters_rebuilt",
                  "training.sampler_restarts", "training.master_not_refreshed",
                  "training.moments_through_bf16", "training.rng_reseeded",
                  "checkpoint.rng_taken_for_replicas", "checkpoint.rng_of_rank0_for_all",
                  "checkpoint.optimizer_only", "checkpoint.moments_swapped",
                  "checkpoint.load_not_verified", "checkpoint.snapshot_is_live",
                  "checkpoint.halves_of_state_swapped", "subject.resumes_without_momentum",
                  "subject.resumes_with_another_rate", "subject.resumes_without_rng",
                  "subject.moments_swapped"},
    .check = Check,
    .capabilities = {"train", "save"},
}};

}  // namespace
}  // namespace shardproof::checkpoint::training_round_trip
