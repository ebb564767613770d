// loading.all_defined: once a model is ready, every rank has every tensor, and each has a value.
#include <set>

#include "verify/verdict/holders.h"
#include "verify/verdict/select.h"

namespace shardproof::loading::all_defined {
namespace {

void CheckStage(const Evidence& evidence, const PhaseEvidence& phase, const std::string& stage,
                Judgement& judgement) {
  const std::vector<std::string> present = TensorNames(phase, stage);
  std::set<std::string> names(present.begin(), present.end());
  for (const auto& [name, tensor] : evidence.oracle.declared) names.insert(name);

  FindingsByRank findings(phase, stage);
  for (const std::string& name : names) {
    const Holders holders = HoldersOf(phase, stage, name);
    for (const RankEvidence& rank : phase.ranks) {
      const StageRecord* record = rank.Stage(stage);
      if (record == nullptr || !record->complete) continue;
      const auto state = record->tensors.find(name);
      const bool is_absent = state == record->tensors.end();
      if (is_absent && !holders.Expects(rank.rank)) continue;
      judgement.Compared();
      if (is_absent) {
        const bool is_declared = evidence.oracle.declared.contains(name);
        findings.Add(name, "absent",
                     is_declared ? "the model declares this tensor, but it is missing"
                                 : "other ranks have this tensor, but it is missing here",
                     {rank.rank});
      } else if (!state->second.unreadable.empty()) {
        NoteUnreadable(phase, stage, name, state->second.unreadable, judgement);
      } else if (state->second.content != Content::kDefined) {
        findings.Add(name, "undefined", "nothing has given it a value yet", {rank.rank});
      }
    }
  }
  findings.Report(judgement);
}

/// A tensor without memory cannot have a value: whoever recorded that is wrong.
void CheckContradictions(const PhaseEvidence& phase, Judgement& judgement) {
  std::set<std::string> stages;
  for (const RankEvidence& rank : phase.ranks) {
    for (const StageRecord& record : rank.stages) stages.insert(record.Key());
  }
  for (const std::string& stage : stages) {
    for (const std::string& name : TensorNames(phase, stage)) {
      std::vector<int64_t> ranks;
      for (const RankEvidence& rank : phase.ranks) {
        const TensorState* state = FindTensor(rank, stage, name).state;
        if (state != nullptr && state->is_meta && state->content == Content::kDefined) {
          ranks.push_back(rank.rank);
        }
      }
      if (ranks.empty()) continue;
      Finding finding = FindingAt(phase, stage, name, "contradiction", ranks,
                                  "on the meta device, yet recorded as having a value");
      finding.failure_class = "verifier";
      judgement.Found(std::move(finding));
    }
  }
}

/// At `ready` and `restored` every rank has every tensor that the model declares or that any
/// rank has, but for those that the evidence says other ranks hold, and its content is defined;
/// nothing on meta is said to be defined.
void Check(const Evidence& evidence, Judgement& judgement) {
  for (const PhaseEvidence* phase : LoadPhases(evidence, judgement)) {
    for (const std::string& stage : FinalStages(*phase, judgement)) {
      CheckStage(evidence, *phase, stage, judgement);
    }
    CheckContradictions(*phase, judgement);
  }
}

const PropertyRegistration kRegistration{{
    .id = "loading.all_defined",
    .claim = "Once ready or restored, every rank has every tensor, and each has a defined value.",
    .reads = {{LoadingPhases(), {Stage::kReady, Stage::kRestored}}},
    .tolerance = "none: a flag",
    .source = "huggingface/transformers#45050, #45902; pytorch meta device documentation: a "
              "materialised tensor has undefined content until something writes it",
    .killed_by = {"loading.missing_not_initialised", "loading.buffer_not_computed"},
    .check = Check,
}};

}  // namespace
}  // namespace shardproof::loading::all_defined
