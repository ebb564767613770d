// training.steps_act: an optimizer step changes the model, and no frozen parameter.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "verify/verdict/locate.h"
#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"

namespace shardproof::training::steps_act {
namespace {

bool IsParameter(const Image& image, bool trainable) {
  const TensorDescriptor& descriptor = *image.parts[0].descriptor;
  return descriptor.kind == "parameter" && descriptor.requires_grad == trainable;
}

void CheckStep(const Evidence& evidence, const PhaseEvidence& phase, const std::string& before,
               const std::string& after, Judgement& judgement) {
  int64_t trainable = 0;
  int64_t changed = 0;
  for (const std::string& name : TensorNames(phase, after)) {
    const std::vector<Image> earlier = DefinedImages(phase, before, name, judgement);
    const std::vector<Image> later = DefinedImages(phase, after, name, judgement);
    if (earlier.empty() || later.empty()) continue;
    if (IsParameter(later[0], true)) {
      ++trainable;
      changed += earlier[0].digest != later[0].digest;
    } else if (IsParameter(later[0], false)) {
      judgement.Compared(later.size());
      const Against against{Against::What::kFrozen, phase.phase, before};
      const Comparison comparison{evidence, phase, after, name, against, {}};
      for (Finding& finding : CompareAll(comparison, earlier[0], later)) {
        judgement.Found(std::move(finding));
      }
    }
  }
  // training.steps_by_formula says what a step of the reference makes, which may be what there was.
  if (trainable == 0 || IsReference(evidence)) return;
  judgement.Compared();
  if (changed > 0) return;
  judgement.Found(FindingAt(
      phase, after, "", "idle", {},
      fmt::format("none of {} trainable parameters is another than at `{}`", trainable, before),
      {.against = {Against::What::kEarlier, phase.phase, before}}));
}

/// Between one step and the next some trainable parameter changes, and no parameter that does
/// not require a gradient does.
void Check(const Evidence& evidence, Judgement& judgement) {
  if (PhaseToJudge(evidence, Phase::kTrain, judgement) == nullptr) return;
  for (const PhaseEvidence* phase : TrainPhases(evidence)) {
    if (phase->phase != Phase::kTrain && phase->phase != Phase::kAgain) continue;
    bool stepped = false;
    std::string before;
    for (const std::string& stage : TrainStages(*phase, "model", judgement)) {
      const bool is_step = IsAt(stage, Stage::kStepped) || IsAt(stage, Stage::kResumed);
      if (is_step && !before.empty()) CheckStep(evidence, *phase, before, stage, judgement);
      stepped = stepped || IsAt(stage, Stage::kStepped);
      before = stage;
    }
    if (!stepped) {
      judgement.Inconclusive(fmt::format("no rank of phase {} reached `stepped`", phase->name()));
    }
  }
  judgement.Skipped(IsReference(evidence) ? "the model has no frozen parameter"
                                          : "the model has no parameter");
}

const PropertyRegistration kRegistration{{
    .id = "training.steps_act",
    .claim = "Every optimizer step changes the model, and none changes a frozen parameter.",
    .reads = {{{Phase::kTrain, Phase::kAgain},
               {Stage::kReady, Stage::kStepped, Stage::kRestored, Stage::kResumed}}},
    .tolerance = "bit-exact for what is frozen",
    .source = "torch.optim documentation: a step updates the parameters that the optimizer "
              "holds",
    .killed_by = {"subject.stale_optimizer_steps", "subject.steps_change_frozen"},
    .check = Check,
    .capabilities = {"train"},
}};

}  // namespace
}  // namespace shardproof::training::steps_act
