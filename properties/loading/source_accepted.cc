// loading.source_accepted: a job loads what is sound: no rank refuses a source of which the
// verifier's own reader reads what the refusal speaks of.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "verify/verdict/refusal.h"
#include "verify/verdict/select.h"

namespace shardproof::loading::source_accepted {
namespace {

/// What the job alone reads of a source, and the verifier does not.
bool SpeaksOfSeal(const ErrorRecord& error) {
  return error.message.find("shardproof.seal.json") != std::string::npos;
}

bool IsOfLoading(const ErrorRecord& error) {
  constexpr Stage kStages[] = {Stage::kBuilt,   Stage::kLoaded,       Stage::kBound,
                               Stage::kSharded, Stage::kMaterialized, Stage::kReady};
  return error.stage.empty() || std::any_of(std::begin(kStages), std::end(kStages),
                                            [&](Stage stage) { return error.stage == stage; });
}

void CheckPhase(const CheckpointRecord& source, const PhaseEvidence& phase, Judgement& judgement) {
  FindingsByRank findings(phase, Stage::kLoaded);
  for (const RankEvidence& rank : phase.ranks) {
    if (Shows(rank, "model", Stage::kReady)) judgement.Compared();
    for (const ErrorRecord& error : rank.errors) {
      if (error.code != "bad-input" || !IsOfLoading(error)) continue;
      const std::string tensor = TensorNamedIn(source, error.message);
      if (tensor.empty() && FileNamedIn(source, error.message).empty()) continue;
      if (SpeaksOfSeal(error)) continue;
      judgement.Compared();
      findings.Add(tensor, "refused",
                   fmt::format("the job refuses a sound source: {}; {}",
                               WithoutFinder(error.message), FoundThere(source, tensor)),
                   {rank.rank});
    }
  }
  findings.Report(judgement);
}

/// No rank of a run that no fault struck refuses a tensor or a file of a source that the verifier's
/// own reader has read whole, and has found to be the model's. A finding has the tensor that the
/// refusal names.
void Check(const Evidence& evidence, Judgement& judgement) {
  if (!RefusalsToJudge(evidence, judgement)) return;
  if (const std::string& why = evidence.oracle.source.error; !why.empty()) {
    judgement.Skipped("the verifier's own reader refuses the source, too: " + why);
    return;
  }
  for (const PhaseEvidence& phase : evidence.phases) {
    if (!phase.facts().resumes) CheckPhase(evidence.oracle.source, phase, judgement);
  }
  judgement.Skipped("no rank came to have its model ready");
}

const PropertyRegistration kRegistration{{
    .id = "loading.source_accepted",
    .claim = "A sound checkpoint is loaded: no rank refuses a tensor or a file of it.",
    .reads = {{EveryPhase(), {}, "what ranks refuse, the source checkpoint"}},
    .tolerance = "none",
    .source = "the safetensors format: what it allows is not refused",
    .killed_by = {"loading.scalar_refused"},
    .check = Check,
}};

}  // namespace
}  // namespace shardproof::loading::source_accepted
