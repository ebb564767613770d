// fault.nothing_lost: whatever a fault has cut short, a checkpoint that was there is whole, or a
// newer one is.
#include <fmt/format.h>

#include <algorithm>

#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"

namespace shardproof::fault::nothing_lost {
namespace {

class Judging {
 public:
  /// \param undisturbed  what the job leaves where nothing was and nothing strikes it
  Judging(const PhaseEvidence& phase, const LeftRecord& left, const LeftRecord& undisturbed,
          Judgement& judgement)
      : phase_(phase), left_(left), undisturbed_(undisturbed), judgement_(judgement) {}

  void Check(bool is_over) {
    for (const LeftCheckpoint& one : left_.checkpoints) {
      judgement_.Compared();
      if (!one.damage.empty()) {
        Add("damaged", fmt::format("{} is not whole: {}", NameOf(one), ListSome(one.damage, 2)),
            {.file = one.name});
      } else if (!one.is_previous) {
        CheckContent(one);
      }
    }
    if (left_.had_previous) {
      judgement_.Compared();
      if (left_.checkpoints.empty())
        Add("lost", "the checkpoint of an earlier job is gone, and there is no other");
    }
    if (left_.latest) CheckLatest();
    if (is_over) CheckOver();
    if (!is_over && EndedAsIfAllWereWell()) CheckAllIsThere();
  }

 private:
  /// Against the one of that name; older ones it may have removed.
  void CheckContent(const LeftCheckpoint& one) {
    for (const LeftCheckpoint& other : undisturbed_.checkpoints) {
      if (other.name != one.name) continue;
      judgement_.Compared();
      if (other.content == one.content) return;
      Add("differs",
          fmt::format("{} does not hold what the job saves without a fault", NameOf(one)),
          {.against = {Against::What::kStage, Phase::kUndisturbed}, .file = one.name});
    }
  }

  void CheckLatest() {
    judgement_.Compared();
    const bool is_there = std::any_of(left_.checkpoints.begin(), left_.checkpoints.end(),
                                      [&](const auto& one) { return one.name == *left_.latest; });
    if (!is_there)
      Add("latest", fmt::format("`latest` names '{}', which does not exist", *left_.latest));
  }

  bool EndedAsIfAllWereWell() const {
    return LastStepOf(phase_, Stage::kSaved) &&
           std::all_of(phase_.ranks.begin(), phase_.ranks.end(), [](const RankEvidence& rank) {
             return EndedWell(rank) && rank.exit == "ok";
           });
  }

  /// Whether an error of what it saved was swallowed: all that it would have saved is to be there.
  void CheckAllIsThere() {
    for (const LeftCheckpoint& other : undisturbed_.checkpoints) {
      judgement_.Compared();
      const bool is_there =
          std::any_of(left_.checkpoints.begin(), left_.checkpoints.end(),
                      [&](const auto& one) { return !one.is_previous && one.name == other.name; });
      if (is_there) continue;
      Add("not-saved",
          fmt::format("every rank ended as if all were well, but {}, which it saves, is missing",
                      NameOf(other)));
    }
  }

  /// What a job that was not disturbed leaves after one that was.
  void CheckOver() {
    judgement_.Compared(2);
    if (!left_.drafts.empty())
      Add("draft", "a draft of a save is still there: " + ListSome(left_.drafts));
    const bool is_new = std::any_of(left_.checkpoints.begin(), left_.checkpoints.end(),
                                    [](const auto& one) { return !one.is_previous; });
    if (!is_new) Add("not-saved", "the job that ran afterwards without a fault saved nothing");
  }

  static std::string NameOf(const LeftCheckpoint& one) {
    const std::string whose = one.is_previous ? " of an earlier job" : "";
    return one.name.empty() ? "the checkpoint" + whose : fmt::format("'{}'{}", one.name, whose);
  }

  void Add(const std::string& kind, const std::string& what, const Facts& facts = {}) {
    judgement_.Found(FindingAt(phase_, {}, "", kind, {}, what, facts));
  }

  const PhaseEvidence& phase_;
  const LeftRecord& left_;
  const LeftRecord& undisturbed_;
  Judgement& judgement_;
};

/// Why what a subject saves cannot be told to be whole, or empty.
std::string WhyNotAudited(const Evidence& evidence) {
  const auto undisturbed = evidence.oracle.left.find(Phase::kUndisturbed);
  if (IsReference(evidence) || undisturbed == evidence.oracle.left.end()) return "";
  for (const LeftCheckpoint& one : undisturbed->second.checkpoints) {
    if (!one.damage.empty()) {
      return "`audit` finds its saves incomplete even without a fault: " + one.damage.front();
    }
  }
  return "";
}

/// When a phase that was struck is over, every checkpoint that lies where it saves is whole, by
/// its manifest or against what an earlier job had saved there, and one of the job itself holds
/// what it would without a fault; at least one is there; `latest` names one of them. After the
/// same job has run there once more, undisturbed, there is a checkpoint of its own and no draft
/// of a save. Where all ranks of a struck phase end well, all is there that they save without a
/// fault.
void Check(const Evidence& evidence, Judgement& judgement) {
  if (evidence.test_case.faults.empty()) {
    judgement.Skipped("no fault was to be injected");
    return;
  }
  const auto undisturbed = evidence.oracle.left.find(Phase::kUndisturbed);
  if (const std::string why = WhyNotAudited(evidence); !why.empty()) {
    judgement.Skipped(why);
    return;
  }
  for (const auto& [of, left] : evidence.oracle.left) {
    const PhaseEvidence* phase = evidence.Phase(of);
    const bool follows = FactsOf(of).follows_struck;
    if (phase == nullptr || (!follows && !WasStruck(*phase))) continue;
    const LeftRecord other =
        undisturbed == evidence.oracle.left.end() ? LeftRecord() : undisturbed->second;
    Judging(*phase, left, other, judgement).Check(follows);
  }
  if (judgement.comparisons() == 0) {
    judgement.Skipped("no fault was injected that ends or delays a job");
  }
}

const PropertyRegistration kRegistration{{
    .id = "fault.nothing_lost",
    .claim = "Whatever a fault interrupts, a complete checkpoint remains, and no incomplete "
             "one looks complete.",
    .reads = {{{Phase::kValues, Phase::kTrain, Phase::kAfter}, {}, "checkpoints that were left"}},
    .tolerance = "bit-exact",
    .source = "a fault may cost what was being saved, and nothing that had been",
    .killed_by = {"checkpoint.latest_before_data", "fault.old_one_removed_first",
                  "fault.writer_error_swallowed", "subject.goes_on_without_its_save",
                  "subject.saves_what_it_has"},
    .check = Check,
    .capabilities = {"save"},
    .case_needs = R"({"as_stated": true, "faults": [{"id": "file/enospc", "where": "0"}]})",
}};

}  // namespace
}  // namespace shardproof::fault::nothing_lost
