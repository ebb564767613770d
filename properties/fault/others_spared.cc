// fault.others_spared: a save replaces what a save has written, and nothing else.
#include <fmt/format.h>

#include <algorithm>

#include "verify/verdict/damage.h"
#include "verify/verdict/select.h"

namespace shardproof::fault::others_spared {
namespace {

bool IsInTheWay(const FaultRecord& record) { return record.model == "spare"; }

void CheckPhase(const PhaseEvidence& phase, const FaultRecord& there, Judgement& judgement) {
  FindingsByRank findings(phase, Stage::kSaved);
  for (const RankEvidence& rank : phase.ranks) {
    judgement.Compared();
    const auto found = [&](const std::string& kind, const std::string& what) {
      findings.Add("", kind, fmt::format("{}: {}", what, there.detail), {rank.rank},
                   {.file = there.file, .exit = ExitOf(rank)});
    };
    const bool is_taken =
        std::any_of(rank.faults.begin(), rank.faults.end(),
                    [](const FaultRecord& record) { return IsInTheWay(record) && record.absent; });
    if (is_taken) {
      found("replaced", "the save changed what it had not written");
    } else if (rank.exit == "hang" || rank.exit.starts_with("signal")) {
      found("lost", fmt::format("what was in the way of a save ended the rank by {}", rank.exit));
    } else if (there.harmless) {
      if (rank.errors.empty()) continue;
      found("refused", fmt::format("what the save may replace was refused, \"{}\"",
                                   rank.errors.front().message));
    } else if (rank.errors.empty()) {
      found("not-told", "the rank ended as if its save were not in the way of anything");
    } else if (rank.errors.front().message.find(there.file) == std::string::npos) {
      found("not-named", fmt::format("the refusal, \"{}\", does not name what is in the way",
                                     rank.errors.front().message));
    }
  }
  findings.Report(judgement);
}

/// Where a job finds in the way of its save what no save has written, it changes nothing of that,
/// and the first error of each rank names it. Where it finds an empty folder or what is left of a
/// step, it saves.
void Check(const Evidence& evidence, Judgement& judgement) {
  bool any = false;
  for (const PhaseEvidence& phase : evidence.phases) {
    const FaultRecord* there = DamageOf(phase, IsInTheWay);
    if (there == nullptr) continue;
    any = true;
    if (IsEndedByAnother(phase, IsInTheWay)) {
      judgement.Skipped("another fault may have come before the save");
    } else {
      CheckPhase(phase, *there, judgement);
    }
  }
  if (!any) judgement.Skipped("nothing was in the way of a save");
}

const PropertyRegistration kRegistration{{
    .id = "fault.others_spared",
    .claim = "A save replaces nothing but a checkpoint: whatever else lies there stays, and every "
             "rank names it.",
    .reads = {{{Phase::kValues, Phase::kTrain}, {Stage::kSaved}, "fault records, errors"}},
    .tolerance = "none",
    .source = "a save may cost what an older save has written, and nothing that had not been",
    .killed_by = {"fault.target_cleared"},
    .check = Check,
    .capabilities = {"save"},
    .case_needs =
        R"({"as_stated": true, "faults": [{"id": "file/occupied", "where": "foreign:0"}]})",
}};

}  // namespace
}  // namespace shardproof::fault::others_spared
