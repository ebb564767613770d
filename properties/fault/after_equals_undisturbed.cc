// fault.after_equals_undisturbed: the job that runs after a fault is the job that never had one.
#include <fmt/format.h>

#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"

namespace shardproof::fault::after_equals_undisturbed {
namespace {

/// The first stage at which two ranks do not say the same, and of what.
std::string FirstDifference(const RankEvidence& after, const RankEvidence& undisturbed) {
  if (after.stages.size() != undisturbed.stages.size()) {
    return fmt::format("{} stages were reached, and {} without an earlier fault",
                       after.stages.size(), undisturbed.stages.size());
  }
  for (size_t i = 0; i < after.stages.size(); ++i) {
    const StageRecord& here = after.stages[i];
    const StageRecord& there = undisturbed.stages[i];
    if (here.Key() != there.Key())
      return fmt::format("stage `{}` in place of `{}`", here.Key(), there.Key());
    for (const auto& [name, state] : here.tensors) {
      const auto other = there.tensors.find(name);
      if (other == there.tensors.end()) return fmt::format("'{}' at `{}` is new", name, here.Key());
      if (state.digest != other->second.digest)
        return fmt::format("'{}' at `{}`", name, here.Key());
    }
  }
  if (after.collectives.size() != undisturbed.collectives.size()) {
    return fmt::format("{} collectives were issued, and {} without an earlier fault",
                       after.collectives.size(), undisturbed.collectives.size());
  }
  return "recorded facts other than stages and values of tensors";
}

/// How the undisturbed job differs from itself, where it was run twice; empty if it does not.
std::string WhyNotDeterministic(const Evidence& evidence, const PhaseEvidence& undisturbed) {
  const PhaseEvidence* again = evidence.Phase(Phase::kUndisturbedAgain);
  if (again == nullptr) return "";
  for (size_t rank = 0; rank < again->ranks.size() && rank < undisturbed.ranks.size(); ++rank) {
    const RankEvidence& here = again->ranks[rank];
    const RankEvidence& there = undisturbed.ranks[rank];
    if (here.facts == there.facts) continue;
    return fmt::format("the undisturbed job, run twice, is not deterministic on rank {}: {}", rank,
                       FirstDifference(here, there));
  }
  return "";
}

/// The facts of every rank of phase `after` (the struck job once more, where it has left what
/// it left) equal, byte for byte, those of phase `undisturbed` (the same where nothing was).
void Check(const Evidence& evidence, Judgement& judgement) {
  if (evidence.test_case.faults.empty()) {
    judgement.Skipped("no fault was to be injected");
    return;
  }
  if (evidence.Phase(Phase::kAfter) == nullptr) {
    judgement.Skipped("no fault was injected that ends or delays a job");
    return;
  }
  const PhaseEvidence* after = PhaseToJudge(evidence, Phase::kAfter, judgement);
  const PhaseEvidence* undisturbed = PhaseToJudge(evidence, Phase::kUndisturbed, judgement);
  if (after == nullptr || undisturbed == nullptr) return;
  if (const std::string why = WhyNotDeterministic(evidence, *undisturbed); !why.empty()) {
    judgement.Inconclusive(why);
    return;
  }
  for (size_t rank = 0; rank < after->ranks.size() && rank < undisturbed->ranks.size(); ++rank) {
    const RankEvidence& here = after->ranks[rank];
    const RankEvidence& there = undisturbed->ranks[rank];
    if (!there.closed) {
      judgement.Inconclusive(
          fmt::format("rank {} left no complete evidence of the undisturbed job", rank));
      continue;
    }
    judgement.Compared();
    if (here.facts == there.facts) continue;
    Finding finding = FindingAt(
        *after, {}, "", "differs", {here.rank},
        "differs from the same job without an earlier fault: " + FirstDifference(here, there),
        {.against = {Against::What::kStage, undisturbed->phase}});
    finding.seen = FirstDifference(here, there);
    judgement.Found(std::move(finding));
  }
}

const PropertyRegistration kRegistration{{
    .id = "fault.after_equals_undisturbed",
    .claim = "The job that runs after a fault matches, in everything recorded, a job that "
             "never had the fault.",
    .reads = {{{Phase::kAfter, Phase::kUndisturbed, Phase::kUndisturbedAgain}, {}, "all facts"}},
    .tolerance = "none: facts are deterministic",
    .source = "what a fault leaves behind must have no effect",
    .killed_by = {"fault.draft_taken_for_whole", "subject.leaves_a_lock"},
    .check = Check,
    .capabilities = {"save"},
    .case_needs = R"({"as_stated": true, "faults": [{"id": "file/enospc", "where": "0"}]})",
}};

}  // namespace
}  // namespace shardproof::fault::after_equals_undisturbed
