// checkpoint.resume_exact: a job that was resumed goes on as the one that was never interrupted.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "verify/verdict/compare_stages.h"

namespace shardproof::checkpoint::resume_exact {
namespace {

/// "stepped@3.optimizer" of a step that was resumed: "resumed@3.optimizer".
std::string ResumedKey(const std::string& stepped) {
  return NameOf(Stage::kResumed) + stepped.substr(stepped.find('@'));
}

/// The same job twice. \returns what first differs, or "".
std::string Nondeterminism(const Evidence& evidence, const PhaseEvidence& train,
                           const PhaseEvidence& again, Judgement& judgement) {
  for (const char* of : {"model", "optimizer"}) {
    for (const std::string& key : TrainStages(train, of, judgement)) {
      if (!IsAt(key, Stage::kStepped)) continue;
      const auto differing = CompareStages(evidence, train, key, again, key, judgement);
      if (!differing.empty()) return differing.front().message;
    }
  }
  return "";
}

/// An option of the optimizer that a resumed step had otherwise than the same step of the job that
/// went on: where what they leave differs, the likely cause. Told at the stage of the model, before
/// what follows from it.
void AddOptions(const PhaseEvidence& train, const PhaseEvidence& phase, const std::string& stepped,
                FindingsByRank& findings) {
  for (const RankEvidence& rank : phase.ranks) {
    const StageRecord* now = rank.Stage(ResumedKey(stepped));
    const auto same = static_cast<size_t>(rank.rank) < train.ranks.size() ? rank.rank : 0;
    const StageRecord* before = train.ranks[same].Stage(stepped);
    if (now == nullptr || before == nullptr || !now->optimizer || !before->optimizer) continue;
    const auto& groups = before->optimizer->groups;
    for (size_t i = 0; i < std::min(groups.size(), now->optimizer->groups.size()); ++i) {
      const OptimizerGroup& group = now->optimizer->groups[i];
      for (const auto& [option, value] : groups[i].options) {
        const auto found = group.options.find(option);
        if (found == group.options.end() || found->second == value || group.parameters.empty())
          continue;
        findings.Add(group.parameters.front(), "option",
                     fmt::format("its {} is {}, but {} in the uninterrupted job: the other "
                                 "differences may follow from it ({} parameters have it)",
                                 option, found->second, value, group.parameters.size()),
                     {rank.rank},
                     {.against = {Against::What::kStage, train.phase, stepped}, .option = option});
      }
    }
  }
}

/// Whether the steps of a resumed job may differ in the last bits: in the first that does, it added
/// up the same gradients in another order, and the plain twin finds nothing wrong after the resume.
bool AddsOtherwise(const Evidence& evidence, const std::vector<Finding>& found) {
  bool at_first = false;
  for (const TwinStep& step : evidence.oracle.twin_steps) {
    if (!IsAt(step.stage.text(), Stage::kResumed)) continue;
    if (!step.deviations.empty()) return false;
    at_first = at_first || (step.adds_otherwise && step.stage.text() == found.front().stage);
  }
  return at_first;
}

/// The steps that `phase` took after a resume against those that `train` took without one.
void CheckResumed(const Evidence& evidence, const PhaseEvidence& train, const PhaseEvidence& phase,
                  Judgement& judgement) {
  bool resumed = false;
  std::vector<Finding> found;
  std::vector<std::string> steps;  // keys of the optimizer
  for (const char* of : {"model", "optimizer"}) {
    const std::vector<std::string> keys = TrainStages(phase, of, judgement);
    const std::set<std::string> known(keys.begin(), keys.end());
    for (const std::string& key : TrainStages(train, of, judgement)) {
      if (!IsAt(key, Stage::kStepped) || !known.contains(ResumedKey(key))) continue;
      resumed = true;
      if (of == std::string("optimizer")) steps.push_back(key);
      auto differing = CompareStages(evidence, train, key, phase, ResumedKey(key), judgement);
      std::move(differing.begin(), differing.end(), std::back_inserter(found));
    }
  }
  for (const std::string& key : steps) {
    if (found.empty()) break;
    const std::string resumed_key = ResumedKey(key);
    FindingsByRank options(phase, resumed_key.substr(0, resumed_key.find('.')));
    const size_t before = judgement.findings().size();
    AddOptions(train, phase, key, options);
    options.Report(judgement);
    if (judgement.findings().size() > before) break;  // later steps have it from this one
  }
  if (!found.empty() && AddsOtherwise(evidence, found)) {
    judgement.NotCompared(fmt::format(
        "from `{}` on steps were not compared bit for bit with those of the uninterrupted job: the "
        "same gradients were added up in another order, as by DDP, whose buckets are made anew "
        "after its first backward, and by more than two ranks (find_unused_parameters=True keeps "
        "them)",
        found.front().stage));
    found.clear();
  }
  for (Finding& finding : found) judgement.Found(std::move(finding));
  if (!resumed) {
    judgement.Inconclusive(fmt::format("no rank of phase {} reached `resumed`", phase.name()));
  }
}

/// Every step after a resume leaves the model and the optimizer as the same step leaves them in
/// the job that went on; those of the reference on any mesh. Held only against a job that does
/// the same twice.
void Check(const Evidence& evidence, Judgement& judgement) {
  const PhaseEvidence* train = PhaseToJudge(evidence, Phase::kTrain, judgement);
  const PhaseEvidence* again = PhaseToJudge(evidence, Phase::kAgain, judgement);
  if (train == nullptr || again == nullptr) return;
  const std::string unlike = Nondeterminism(evidence, *train, *again, judgement);
  if (!unlike.empty()) {
    judgement.Inconclusive("the undisturbed job does not do the same twice: " + unlike);
    return;
  }
  CheckResumed(evidence, *train, *train, judgement);
  // Frameworks add up in another order on another mesh; the reference does not.
  if (!IsReference(evidence) || evidence.test_case.resume_mesh.empty()) return;
  const PhaseEvidence* resume = PhaseToJudge(evidence, Phase::kTrainResume, judgement);
  if (resume != nullptr) CheckResumed(evidence, *train, *resume, judgement);
}

const PropertyRegistration kRegistration{{
    .id = "checkpoint.resume_exact",
    .claim = "Every step after a resume is bit-identical to the same step of the "
             "uninterrupted job.",
    .reads = {{{Phase::kTrain}, {Stage::kStepped, Stage::kResumed}},
              {{Phase::kAgain}, {Stage::kStepped}},
              {{Phase::kTrainResume}, {Stage::kResumed}}},
    .tolerance = "bit-exact: the same operations on the same values in the same order, as the "
                 "second run of the undisturbed job shows; told, where the plain twin sees that "
                 "the same gradients were added up in another order",
    .source = "NVIDIA/Megatron-LM#5071, ISEEKYAN/Megatron-LM#104",
    .killed_by = {"training.options_not_restored", "training.step_not_restored",
                  "training.state_by_position", "training.masters_rebuilt",
                  "training.sampler_restarts", "training.master_not_refreshed",
                  "training.moments_through_bf16", "checkpoint.load_not_verified",
                  "subject.resumes_at_another_step", "subject.rate_changes_after_resume"},
    .check = Check,
    .capabilities = {"train", "save"},
    .needs_twin_steps = true,
}};

}  // namespace
}  // namespace shardproof::checkpoint::resume_exact
