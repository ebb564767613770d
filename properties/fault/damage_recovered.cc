// fault.damage_recovered: a saved checkpoint that is damaged is never restored.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "verify/verdict/damage.h"
#include "verify/verdict/select.h"

namespace shardproof::fault::damage_recovered {
namespace {

constexpr const char* kRot = "file/rot";

bool IsRot(const FaultRecord& record) { return record.id == kRot; }

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

void CheckPhase(const Evidence& evidence, const PhaseEvidence& phase, const FaultRecord& damage,
                Judgement& judgement) {
  const auto last = LastStepOf(phase, Stage::kSaved);
  const auto restored = LastStepOf(phase, Stage::kRestored);
  judgement.Compared();
  const auto found = [&](const std::string& kind, const std::string& what) {
    judgement.Found(FindingAt(phase, restored ? KeyOf(phase, Stage::kRestored, "model") : "", "",
                              kind, {}, what + ": " + damage.detail, {.file = damage.file}));
  };
  if (restored) {
    if (last && *restored >= *last) found("restored", "what is damaged was restored");
    return;
  }
  if (IsEndedByAnother(phase, IsRot)) return;
  const bool trains = phase.facts().trains;
  if (trains && evidence.test_case.SavedSteps().size() > 1 &&
      evidence.test_case.training.keep > 1) {
    return found("not-recovered", "an older save is intact, but was not restored");
  }
  const std::vector<std::string>& tensors = damage.tensors;
  if (tensors.empty()) {
    return judgement.Inconclusive("the record of " + damage.id + " does not name what it damaged");
  }
  for (const RankEvidence& rank : phase.ranks) {
    judgement.Compared();
    // As a person finds it in the text of the error, which is what must be so.
    const bool names =
        std::any_of(rank.errors.begin(), rank.errors.end(), [&](const ErrorRecord& error) {
          const auto has = [&](const std::string& text) {
            return error.message.find(text) != std::string::npos;
          };
          return has("digest") && has("'" + BaseName(damage.file) + "'") &&
                 std::any_of(tensors.begin(), tensors.end(),
                             [&](const std::string& name) { return has("'" + name + "'"); });
        });
    if (!names) {
      found("not-named",
            fmt::format("rank {} ended without an error that names the tensor and its file",
                        rank.rank));
      return;
    }
  }
}

/// Where a bit of the newest save is flipped on its way back, that save is not restored: an
/// older one that is whole is, or if there is none every rank ends with an error that names the
/// tensor and its file.
void Check(const Evidence& evidence, Judgement& judgement) {
  const auto& faults = evidence.test_case.faults;
  if (std::none_of(faults.begin(), faults.end(), [](const FaultCase& f) { return f.id == kRot; })) {
    judgement.Skipped("no save was to be damaged");
    return;
  }
  bool any = false;
  for (const PhaseEvidence& phase : evidence.phases) {
    const FaultRecord* damage = DamageOf(phase, IsRot);
    if (damage == nullptr) continue;
    any = true;
    CheckPhase(evidence, phase, *damage, judgement);
  }
  if (any) return;
  if (std::any_of(evidence.phases.begin(), evidence.phases.end(),
                  [](const PhaseEvidence& phase) { return IsEndedByAnother(phase, IsRot); })) {
    judgement.Skipped("another fault came before the damage");
  } else {
    judgement.Inconclusive("nothing was damaged");
  }
}

const PropertyRegistration kRegistration{{
    .id = "fault.damage_recovered",
    .claim = "A damaged checkpoint is never restored: an older one is restored instead, or "
             "every rank says why.",
    .reads = {{{Phase::kValues, Phase::kTrain},
               {Stage::kSaved, Stage::kRestored},
               "fault records, errors"}},
    .tolerance = "none",
    .source = "the CK-noverify family",
    .killed_by = {"checkpoint.load_not_verified"},
    .check = Check,
    .capabilities = {"save"},
    .case_needs = R"({"faults": [{"id": "file/rot", "where": "1000"}]})",
}};

}  // namespace
}  // namespace shardproof::fault::damage_recovered
