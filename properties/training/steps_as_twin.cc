// training.steps_as_twin: every step that a subject takes is the one that its plain twin takes: one
// process, unsharded, the same optimizer, the batches of all ranks.
#include <fmt/format.h>

#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"

namespace shardproof::training::steps_as_twin {
namespace {

/// After the first gradient that differs for no known cause: it may be meant.
constexpr const char* kMayBeMeant =
    " (no cause is known; a job that changes gradients by itself, such as by noise, declares "
    "\"gradients\" in CANNOT)";

void Report(const PhaseEvidence& phase, const TwinStep& step, const TwinStepDeviation& one,
            bool is_first, Judgement& judgement) {
  std::string what = one.cause.empty() ? one.what : one.what + ": " + one.cause;
  if (one.cause.empty() && one.kind == "gradient" && judgement.findings().empty()) {
    what += kMayBeMeant;
  }
  Finding finding = FindingAt(phase, step.stage, one.tensor, one.kind, Sorted(one.ranks), what,
                              {.against = {Against::What::kTwin}});
  finding.index = one.index;
  if (one.differing > 0) finding.differing = one.differing;
  finding.expected = one.expected;
  finding.seen = one.seen;
  finding.explanation = one.cause;
  // What goes wrong in the first step goes on: that one is told first.
  finding.is_consequence = !is_first;
  judgement.Found(std::move(finding));
}

/// Each stage that was observed after steps is what the plain twin makes of the stage before it:
/// the gradients of the same batches, the optimizer's step with them, what it counts, and averages
/// of the weights.
void Check(const Evidence& evidence, Judgement& judgement) {
  const PhaseEvidence* phase = PhaseToJudge(evidence, Phase::kTrain, judgement);
  if (phase == nullptr) return;
  if (!StepsToJudge(*phase, judgement)) return;
  const OracleRecord& oracle = evidence.oracle;
  if (!oracle.why_no_twin_steps.empty()) {
    judgement.Inconclusive("the plain twin took no step: " + oracle.why_no_twin_steps);
    return;
  }
  bool is_first = true;
  std::vector<std::string> left_out;
  for (const TwinStep& step : oracle.twin_steps) {
    judgement.Compared(step.compared);
    for (const TwinStepDeviation& one : step.deviations) {
      judgement.Compared();
      Report(*phase, step, one, is_first, judgement);
    }
    if (!step.deviations.empty()) is_first = false;
    if (!step.why_not.empty()) {
      judgement.Inconclusive(fmt::format("at `{}`: {}", step.stage.text(), step.why_not));
    }
    if (!step.left_out.empty()) {
      left_out.push_back(fmt::format("at `{}` {}", step.stage.text(), step.left_out));
    }
  }
  for (std::string& reason : left_out) {
    if (judgement.comparisons() > 0) {
      judgement.NotCompared(std::move(reason));
    } else {
      judgement.Skipped(std::move(reason));
    }
  }
  if (oracle.twin_steps.empty()) judgement.Skipped("no step was observed with its optimizer");
}

const PropertyRegistration kRegistration{{
    .id = "training.steps_as_twin",
    .claim = "Every step of a subject is the one that its plain twin takes from the same values: "
             "unsharded, with the same optimizer, and the batches of all ranks.",
    .reads = {{{Phase::kTrain},
               {Stage::kReady, Stage::kStepped, Stage::kRestored, Stage::kResumed},
               "the steps of the plain twin"}},
    .tolerance =
        "u is half an ulp of 1 in the narrowest dtype of a step. Gradients: 16 times the most that "
        "rounding changes in the tensor (the twin in the subject's dtypes against F64), and "
        "(ranks x batches + 3) u sum|g| for their reduction; in narrower dtypes than F32 also the "
        "norm of all differences in a tensor of 16 and more elements, 8 times that of what "
        "rounding changes, and the factors of whole ranks, twice 16 times what rounding changes "
        "in them; what exceeds it, as at a kink, twice "
        "the most that 8 random shifts of the weights by an ulp move it. Norms: twice the norm of "
        "the former, and 2e-6 of the norm. What the optimizer makes of the observed gradients: 8 u "
        "(|before| + "
        "|after|), and 16 times the most that rounding changes in the tensor. Averages: 8 u "
        "(|before| + |after| + |weights|). Weights of losses: 1e-3. Rates of a plain schedule: "
        "1e-9 of them. Counters, orders of samples and dtypes: none. Each stage starts from what "
        "was observed before it, so errors do not add up over steps",
    .source = "the definition of data parallelism: the step of a batch is that of its parts",
    .killed_by = {"subject.gradients_summed",
                  "subject.clips_by_its_own_norm",
                  "subject.norm_of_its_own_part",
                  "subject.batch_taken_twice",
                  "subject.gradients_not_reduced",
                  "subject.gradients_of_the_step_before",
                  "subject.gradients_rounded",
                  "subject.gradients_not_zeroed",
                  "subject.decays_norms",
                  "subject.steps_twice",
                  "subject.counter_read_ahead",
                  "subject.frozen_by_its_momentum",
                  "subject.masters_fed_late",
                  "subject.average_of_the_step_before",
                  "subject.gradients_summed_along_tp",
                  "subject.steps_once_more_at_the_end",
                  "subject.steps_left_out",
                  "subject.steps_counted_from_2",
                  "subject.losses_left_out",
                  "subject.losses_divided_by_another_number",
                  "subject.gradients_zeroed_before_the_step",
                  "subject.backward_left_out",
                  "subject.clips_before_it_unscales",
                  "subject.epochs_in_one_order",
                  "subject.rate_falls_twice",
                  "subject.precision_left_out",
                  "subject.loss_scale_not_restored",
                  "subject.evaluates_on_one_rank",
                  "subject.zero_by_hand_off_by_one",
                  "subject.owners_scale_their_own",
                  "subject.tokens_divided_twice",
                  "subject.teacher_trains"},
    .check = Check,
    .needs_twin_steps = true,
    .only_subjects = true,
}};

}  // namespace
}  // namespace shardproof::training::steps_as_twin
