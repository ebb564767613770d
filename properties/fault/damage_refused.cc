// fault.damage_refused: a source that is not as its format asks is never loaded, and whoever is to
// mend it is told what to look at.
#include <fmt/format.h>

#include <algorithm>

#include "verify/verdict/damage.h"
#include "verify/verdict/select.h"

namespace shardproof::fault::damage_refused {
namespace {

bool IsDamagedSource(const FaultRecord& record) { return record.model == "refuse"; }

/// As a person finds it in the text of the error, which is what must be so.
bool Names(const ErrorRecord& error, const FaultRecord& damage) {
  const auto has = [&](const std::string& text) {
    return error.message.find(text) != std::string::npos;
  };
  return has(damage.file) ||
         std::any_of(damage.tensors.begin(), damage.tensors.end(), [&](const std::string& name) {
           return has("'" + name + "'") || has('"' + name + '"');
         });
}

void CheckPhase(const PhaseEvidence& phase, const FaultRecord& damage, Judgement& judgement) {
  FindingsByRank findings(phase, Stage::kLoaded);
  for (const RankEvidence& rank : phase.ranks) {
    judgement.Compared();
    const auto found = [&](const std::string& kind, const std::string& what) {
      findings.Add("", kind, fmt::format("{}: {}", what, damage.detail), {rank.rank},
                   {.file = damage.file, .exit = ExitOf(rank)});
    };
    if (Shows(rank, "model", Stage::kReady)) {
      found("accepted", "a damaged source was loaded");
    } else if (rank.exit == "hang" || rank.exit.starts_with("signal")) {
      found("lost", fmt::format("a damaged source ended the rank by {}", rank.exit));
    } else if (rank.errors.empty()) {
      found("not-told", "the rank did not load a damaged source, and said nothing");
    } else if (!Names(rank.errors.front(), damage)) {
      found("not-named", fmt::format("the refusal, \"{}\", names neither the damaged file nor a "
                                     "tensor of it",
                                     rank.errors.front().message));
    }
  }
  findings.Report(judgement);
}

/// Where a file of the source is damaged, no rank comes to have its model ready, and the first
/// error of each names the file or a tensor whose entry the damage is in.
void Check(const Evidence& evidence, Judgement& judgement) {
  bool any = false;
  for (const PhaseEvidence& phase : evidence.phases) {
    const FaultRecord* damage = DamageOf(phase, IsDamagedSource);
    if (damage == nullptr) continue;
    any = true;
    if (IsEndedByAnother(phase, IsDamagedSource)) {
      judgement.Skipped("another fault may have come before the damage");
    } else {
      CheckPhase(phase, *damage, judgement);
    }
  }
  if (!any) judgement.Skipped("no source was damaged");
}

const PropertyRegistration kRegistration{{
    .id = "fault.damage_refused",
    .claim = "A damaged source is never loaded: every rank refuses it, and names the file or the "
             "tensor.",
    .reads = {{{Phase::kValues, Phase::kTrain}, {Stage::kReady}, "fault records, errors"}},
    .tolerance = "none",
    .source = "the safetensors format; every file is hostile until parsed",
    .killed_by = {"loading.unreadable_file_skipped", "loading.refusal_names_nothing"},
    .check = Check,
    .case_needs = R"({"as_stated": true, "faults": [{"id": "file/damage", "where": "offset:0"}]})",
}};

}  // namespace
}  // namespace shardproof::fault::damage_refused
