// checkpoint.commit_whole: what a training job leaves on disk is what it was asked to keep, and
// whole.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "verify/verdict/select.h"

namespace shardproof::checkpoint::commit_whole {
namespace {

constexpr size_t kDamageMax = 3;  // lines in one finding

/// As the reference names the directory of a step.
std::string NameOf(int64_t step) { return fmt::format("step-{:08}", step); }

/// Steps whose save has lost a file, as the job was shown it: it counts for none that is kept.
std::set<int64_t> StepsThatLack(const PhaseEvidence& phase) {
  std::set<int64_t> steps;
  for (const RankEvidence& rank : phase.ranks) {
    for (const FaultRecord& record : rank.faults) {
      if (record.step && record.absent && !record.harmless) steps.insert(*record.step);
    }
  }
  return steps;
}

class RootCheck {
 public:
  RootCheck(const Case& test_case, const PhaseEvidence& phase, const SavedRoot& root,
            Judgement& judgement)
      : phase_(phase), root_(root), judgement_(judgement), saved_(test_case.SavedSteps()) {
    const std::set<int64_t> lacking = StepsThatLack(phase);
    for (auto step = saved_.rbegin(); step != saved_.rend(); ++step) {
      if (lacking.contains(*step) && step != saved_.rbegin()) {
        lacking_.insert(NameOf(*step));
      } else if (static_cast<int64_t>(expected_.size()) < test_case.training.keep) {
        expected_.insert(NameOf(*step));
      }
    }
  }

  void Run() {
    judgement_.Compared();
    if (!root_.error.empty()) {
      return Found("unreadable", "where the job saved cannot be read: " + root_.error);
    }
    CheckLatest();
    CheckNames();
    for (const SavedStep& step : root_.steps) {
      if (expected_.contains(step.name)) CheckStep(step);
    }
  }

 private:
  void Found(const std::string& kind, const std::string& what, const Facts& facts = {}) {
    judgement_.Found(FindingAt(phase_, Stage::kSaved, "", kind, {}, what, facts));
  }

  void CheckLatest() {
    const std::string expected = NameOf(saved_.back()) + "\n";
    judgement_.Compared();
    if (root_.latest == expected) return;
    std::string seen;
    for (const char c : root_.latest.substr(0, 64)) seen += c >= ' ' && c <= '~' ? c : '?';
    Found("latest",
          fmt::format("the file `latest` should name {}, but holds '{}'", NameOf(saved_.back()),
                      seen),
          {.file = "latest", .step = saved_.back()});
  }

  void CheckNames() {
    std::set<std::string> names(root_.names.begin(), root_.names.end());
    names.erase("latest");
    for (const std::string& name : lacking_) names.erase(name);
    for (const std::string& name : expected_) {
      judgement_.Compared();
      if (names.erase(name) == 0) {
        Found("absent", fmt::format("{} should have been kept, but is missing", name),
              {.file = name});
      }
    }
    if (!root_.was_empty) {
      judgement_.Skipped("other steps were there before the job began");
      return;
    }
    judgement_.Compared();
    if (names.empty()) return;
    Found("leftover",
          fmt::format("expected only {} and `latest`, found also {}", fmt::join(expected_, ", "),
                      fmt::join(names, ", ")),
          {.file = *names.begin()});
  }

  void CheckStep(const SavedStep& step) {
    judgement_.Compared(1 + static_cast<uint64_t>(step.tensors));
    if (!step.sealed) {
      return Found("unsealed", step.name + " has no manifest", {.file = step.name});
    }
    if (step.damage.empty()) return;
    const size_t shown = std::min(step.damage.size(), kDamageMax);
    Found("damaged",
          fmt::format("{} does not match its manifest: {}{}", step.name,
                      fmt::join(step.damage.begin(),
                                step.damage.begin() + static_cast<ptrdiff_t>(shown), "; "),
                      step.damage.size() > shown
                          ? fmt::format(" and {} more", step.damage.size() - shown)
                          : ""),
          {.file = step.name});
  }

  const PhaseEvidence& phase_;
  const SavedRoot& root_;
  Judgement& judgement_;
  const std::vector<int64_t> saved_;
  std::set<std::string> expected_;
  std::set<std::string> lacking_;  ///< these may be there, too
};

/// Below the directory that a training job of the reference saves in are the newest saves that
/// the Case asks to keep, and nothing else but the file `latest`, which names the newest; a save
/// that has lost a file since counts for none of them. Each is sound, and every tensor, value and
/// file of it has the digest that its own manifest says. Read by the verifier's own audit.
void Check(const Evidence& evidence, Judgement& judgement) {
  if (!IsReference(evidence)) {
    judgement.Skipped("a subject lays out what it saves by itself");
    return;
  }
  const PhaseEvidence* train = PhaseToJudge(evidence, Phase::kTrain, judgement);
  if (train == nullptr) return;
  const auto root = evidence.oracle.roots.find(Phase::kTrain);
  const auto saved = evidence.test_case.SavedSteps();
  if (root == evidence.oracle.roots.end() || saved.empty() ||
      LastStepOf(*train, Stage::kSaved) != saved.back()) {
    judgement.Inconclusive("phase train did not save all that the case asks for");
    return;
  }
  RootCheck(evidence.test_case, *train, root->second, judgement).Run();
}

const PropertyRegistration kRegistration{{
    .id = "checkpoint.commit_whole",
    .claim = "A training job leaves exactly the checkpoints on disk that it was asked to "
             "keep, and each matches its manifest.",
    .reads = {{{Phase::kTrain}, {Stage::kSaved}, "what is on disk"}},
    .tolerance = "bit-exact",
    .source = "the CK-notracker and CK-commitearly families",
    .killed_by = {"checkpoint.latest_not_moved", "checkpoint.latest_not_synced",
                  "checkpoint.oldest_kept", "checkpoint.manifest_of_rank0",
                  "checkpoint.lacking_counts_as_kept", "checkpoint.archives_without_crc"},
    .check = Check,
    .capabilities = {"train", "save"},
}};

}  // namespace
}  // namespace shardproof::checkpoint::commit_whole
