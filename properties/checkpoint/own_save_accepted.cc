// checkpoint.own_save_accepted: a job can restore what it has saved itself.
#include <fmt/format.h>

#include "verify/verdict/refusal.h"
#include "verify/verdict/select.h"

namespace shardproof::checkpoint::own_save_accepted {
namespace {

/// What the verifier's own readers found where a phase saved.
class OwnSave {
 public:
  OwnSave(const OracleRecord& oracle, Phase by) {
    if (const auto saved = oracle.saved.find(by); saved != oracle.saved.end()) {
      record_ = &saved->second;
    }
    if (const auto root = oracle.roots.find(by); root != oracle.roots.end()) root_ = &root->second;
  }

  std::string NamedIn(const std::string& message) const {
    return record_ == nullptr ? "" : TensorNamedIn(*record_, message);
  }

  /// What they say of it, so that a reader knows whether to look at the save or at the restore.
  std::string InWords(const std::string& tensor) const {
    if (record_ == nullptr) return "the verifier's own reader was not asked";
    if (!record_->error.empty()) return "nor can the verifier's own reader: " + record_->error;
    if (const std::string* damage = Damage()) return "the verifier's own audit finds: " + *damage;
    return FoundThere(*record_, tensor);
  }

 private:
  const std::string* Damage() const {
    if (root_ == nullptr) return nullptr;
    for (const SavedStep& step : root_->steps) {
      if (!step.damage.empty()) return &step.damage[0];
    }
    return nullptr;
  }

  const CheckpointRecord* record_ = nullptr;
  const SavedRoot* root_ = nullptr;
};

void CheckPhase(const Evidence& evidence, const PhaseEvidence& phase, Judgement& judgement) {
  const OwnSave save(evidence.oracle, phase.facts().resumes.value_or(phase.phase));
  FindingsByRank findings(phase, Stage::kRestored);
  for (const RankEvidence& rank : phase.ranks) {
    if (Shows(rank, "model", Stage::kRestored)) judgement.Compared();
    for (const ErrorRecord& error : rank.errors) {
      if (error.code != "bad-input" || !(error.stage == Stage::kRestored)) continue;
      judgement.Compared();
      const std::string tensor = save.NamedIn(error.message);
      findings.Add(tensor, "refused",
                   fmt::format("the job refuses what it has saved itself: {}; {}",
                               WithoutFinder(error.message), save.InWords(tensor)),
                   {rank.rank});
    }
  }
  findings.Report(judgement);
}

/// No rank of a run that no fault struck refuses a checkpoint that the same run has saved. A
/// finding has the tensor that the refusal names, and what the verifier's own readers find there.
void Check(const Evidence& evidence, Judgement& judgement) {
  if (!RefusalsToJudge(evidence, judgement)) return;
  for (const PhaseEvidence& phase : evidence.phases) CheckPhase(evidence, phase, judgement);
  judgement.Skipped("no rank came to restore anything");
}

const PropertyRegistration kRegistration{{
    .id = "checkpoint.own_save_accepted",
    .claim = "A job can restore what it has saved itself: no rank refuses it.",
    .reads = {{{Phase::kValues, Phase::kResume, Phase::kTrain, Phase::kTrainResume},
               {},
               "what ranks refuse, saved checkpoints"}},
    .tolerance = "none",
    .source = "the definition of a checkpoint; the CK-noverify family",
    .killed_by = {"checkpoint.digests_of_last_rank_lost"},
    .check = Check,
    .capabilities = {"save"},
}};

}  // namespace
}  // namespace shardproof::checkpoint::own_save_accepted
