// fault.damage_recovered: a saved checkpoint that is damaged is never restored.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "verify/verdict/compare_stages.h"
#include "verify/verdict/damage.h"
#include "verify/verdict/select.h"

namespace shardproof::fault::damage_recovered {
namespace {

constexpr const char* kRot = "file/rot";
constexpr const char* kDamage = "file/damage-save";
constexpr const char* kLatest = "latest";

bool IsOfSave(const std::string& id) { return id == kRot || id == kDamage; }
bool IsDamage(const FaultRecord& record) { return IsOfSave(record.id); }

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// Each of the faults once, however many ranks have met it.
std::vector<const FaultRecord*> DamageIn(const PhaseEvidence& phase) {
  std::vector<const FaultRecord*> found;
  for (const RankEvidence& rank : phase.ranks) {
    for (const FaultRecord& record : rank.faults) {
      const bool is_known = std::any_of(found.begin(), found.end(), [&](const auto* other) {
        return other->id == record.id && other->where == record.where;
      });
      if (IsDamage(record) && !is_known) found.push_back(&record);
    }
  }
  return found;
}

/// As a person finds it in the text of the error, which is what must be so.
bool Names(const ErrorRecord& error, const FaultRecord& damage) {
  const auto has = [&](const std::string& text) {
    return error.message.find(text) != std::string::npos;
  };
  const std::string file = BaseName(damage.file);
  if (damage.tensors.empty()) return has(file);
  return has("digest") && has("'" + file + "'") &&
         std::any_of(damage.tensors.begin(), damage.tensors.end(),
                     [&](const std::string& name) { return has("'" + name + "'"); });
}

class Judging {
 public:
  Judging(const Evidence& evidence, const PhaseEvidence& phase, Judgement& judgement)
      : evidence_(evidence),
        phase_(phase),
        judgement_(judgement),
        damage_(DamageIn(phase)),
        last_(LastStepOf(phase, Stage::kSaved)),
        restored_(LastStepOf(phase, Stage::kRestored)) {}

  /// Goes from the newest save to the oldest, as a restore must.
  void Check() {
    judgement_.Compared();
    std::vector<const FaultRecord*> refused;
    for (const int64_t step : SavesThere()) {
      const std::vector<const FaultRecord*> damage = DamageOfStep(step);
      const auto real = std::find_if(damage.begin(), damage.end(),
                                     [](const auto* record) { return !record->harmless; });
      if (real != damage.end()) {
        if (restored_ == step) return Found("restored", "what is damaged was restored", **real);
        refused.push_back(*real);
        continue;
      }
      if (restored_ == step) return CompareRestored(step);
      if (!damage.empty()) {  // it may be refused for nothing, if it says what for
        refused.push_back(damage.front());
        continue;
      }
      if (IsEndedByAnother(phase_, IsDamage) && !restored_) return;
      const FaultRecord& told = refused.empty() ? *damage_.front() : *refused.front();
      if (!restored_) return Found("not-recovered", IsIntact(step) + "was not restored", told);
      return Found(
          "not-newest",
          fmt::format("{}what was restored is the save of step {}", IsIntact(step), *restored_),
          told);
    }
    if (restored_)
      return Found("restored", "a save that is not to be there was restored", *damage_.front());
    if (!IsEndedByAnother(phase_, IsDamage)) CheckErrors(refused);
  }

 private:
  std::string IsIntact(int64_t step) const {
    const bool is_first = last_ == step;
    return phase_.facts().trains ? fmt::format("the {}save of step {} is intact, but ",
                                               is_first ? "" : "older ", step)
                                 : "the save is intact, but ";
  }

  static bool IsThere(const SavedRoot& root, int64_t step) {
    const std::string name = fmt::format("step-{:08}", step);  // as the reference calls it
    return std::any_of(root.steps.begin(), root.steps.end(),
                       [&](const SavedStep& one) { return one.name == name && one.sealed; });
  }

  /// Steps of the saves that lie there, from the newest on that `latest` lets a restore try.
  std::vector<int64_t> SavesThere() const {
    if (!phase_.facts().trains) return {last_.value_or(0)};
    const std::vector<int64_t> saved = evidence_.test_case.SavedSteps();
    std::set<int64_t> steps(saved.begin(), saved.end());
    const auto root = evidence_.oracle.roots.find(phase_.phase);
    if (root != evidence_.oracle.roots.end()) {
      std::erase_if(steps, [&](int64_t step) { return !IsThere(root->second, step); });
    } else {
      const auto keep = static_cast<size_t>(evidence_.test_case.training.keep);
      while (steps.size() > keep) steps.erase(steps.begin());
    }
    for (const FaultRecord* record : damage_) {
      if (record->file == kLatest && record->step) {
        steps.erase(steps.upper_bound(*record->step), steps.end());
      }
    }
    return {steps.rbegin(), steps.rend()};
  }

  /// A record without a step is of the newest.
  std::vector<const FaultRecord*> DamageOfStep(int64_t step) const {
    std::vector<const FaultRecord*> found;
    for (const FaultRecord* record : damage_) {
      if (record->file == kLatest) continue;
      if (record->step.value_or(last_.value_or(step)) == step) found.push_back(record);
    }
    return found;
  }

  /// Where nothing else is judged: that what was restored is what was saved.
  void CompareRestored(int64_t step) {
    if (!evidence_.test_case.as_stated) return;
    for (const char* of : {"model", "optimizer"}) {
      const std::string saved = KeyAt(phase_, Stage::kSaved, step, of);
      const std::string restored = KeyOf(phase_, Stage::kRestored, of);
      if (saved.empty() || restored.empty()) continue;
      for (Finding& finding :
           CompareStages(evidence_, phase_, saved, phase_, restored, judgement_)) {
        judgement_.Found(std::move(finding));
      }
    }
  }

  void CheckErrors(const std::vector<const FaultRecord*>& refused) {
    for (const FaultRecord* damage : refused) {
      if (damage->id == kRot && damage->tensors.empty()) {
        return judgement_.Inconclusive("the record of " + damage->id +
                                       " does not name what it damaged");
      }
      for (const RankEvidence& rank : phase_.ranks) {
        judgement_.Compared();
        if (std::any_of(rank.errors.begin(), rank.errors.end(),
                        [&](const ErrorRecord& error) { return Names(error, *damage); })) {
          continue;
        }
        const std::string said = rank.errors.empty() ? "nothing" : rank.errors.front().message;
        return Found(
            "not-named",
            fmt::format("rank {} ended without an error that names the {}, but with \"{}\"",
                        rank.rank, damage->tensors.empty() ? "file" : "tensor and its file", said),
            *damage);
      }
    }
  }

  void Found(const std::string& kind, const std::string& what, const FaultRecord& damage) {
    judgement_.Found(FindingAt(phase_, restored_ ? KeyOf(phase_, Stage::kRestored, "model") : "",
                               "", kind, {}, what + ": " + damage.detail, {.file = damage.file}));
  }

  const Evidence& evidence_;
  const PhaseEvidence& phase_;
  Judgement& judgement_;
  const std::vector<const FaultRecord*> damage_;
  const std::optional<int64_t> last_;
  const std::optional<int64_t> restored_;
};

/// Where files of a save are damaged on their way back, that save is not restored, unless what is
/// damaged says the same: it is the newest that is whole, and not newer than the one that `latest`
/// names. If there is none, every rank ends with an error that names the file, and the tensor if
/// it is in one.
void Check(const Evidence& evidence, Judgement& judgement) {
  const auto& faults = evidence.test_case.faults;
  if (std::none_of(faults.begin(), faults.end(),
                   [](const FaultCase& fault) { return IsOfSave(fault.id); })) {
    judgement.Skipped("no save was to be damaged");
    return;
  }
  bool any = false;
  for (const PhaseEvidence& phase : evidence.phases) {
    if (DamageOf(phase, IsDamage) == nullptr) continue;
    any = true;
    Judging(evidence, phase, judgement).Check();
  }
  if (any) return;
  if (std::any_of(evidence.phases.begin(), evidence.phases.end(),
                  [](const PhaseEvidence& phase) { return IsEndedByAnother(phase, IsDamage); })) {
    judgement.Skipped("another fault came before the damage");
  } else {
    judgement.Inconclusive("nothing was damaged");
  }
}

const PropertyRegistration kRegistration{{
    .id = "fault.damage_recovered",
    .claim =
        "A damaged checkpoint is never restored: the newest that is whole is restored instead, "
        "or every rank says why.",
    .reads = {{{Phase::kValues, Phase::kTrain},
               {Stage::kSaved, Stage::kRestored},
               "fault records, errors, what is on disk"}},
    .tolerance = "none",
    .source = "the CK-noverify family",
    .killed_by = {"checkpoint.load_not_verified", "checkpoint.manifest_not_read",
                  "checkpoint.newest_whatever_latest"},
    .check = Check,
    .capabilities = {"save"},
    .case_needs = R"({"faults": [{"id": "file/rot", "where": "1000"}]})",
}};

}  // namespace
}  // namespace shardproof::fault::damage_recovered
