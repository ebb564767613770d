// loading.missing_alike: what the checkpoint lacks is initialised, and alike on all ranks.
#include <fmt/format.h>

#include "verify/verdict/expectation.h"
#include "verify/verdict/locate.h"
#include "verify/verdict/select.h"

namespace shardproof {
namespace {

void CheckTensor(const Evidence& evidence, const PhaseEvidence& phase, const std::string& stage,
                 const std::string& name, const FileTensor& expected, Judgement& judgement) {
  if (ImagesOf(phase, stage, name).empty()) {
    judgement.Inconclusive(
        fmt::format("no rank has {} at `{}` of phase {}", name, stage, phase.name));
  }
  const std::vector<Image> defined =
      DefinedImages(phase, stage, name, judgement, Undefined::kFinding);
  judgement.Compared(defined.size());
  const Comparison comparison{evidence, phase, stage, name, "its initial value", {}};
  for (Finding& finding : CompareAll(comparison, ImageOf(expected), defined)) {
    judgement.Found(std::move(finding));
  }
}

/// \claim      Every key that the model has and the checkpoint lacks holds, on every replica, the
///             value that initialisation gives it from seed, name and index.
/// \needs      values, plain, resume: ready, restored
/// \tolerance  bit-exact: initial values are a pure function of (seed, name, index)
/// \killed_by  loading.init_seed_of_rank, loading.missing_not_initialised
/// \source     huggingface/transformers#28245, deepspeedai/Megatron-DeepSpeed#193,
///             pytorch/torchtitan#166; src/load/initial_value.h states the formula
void Check(const Evidence& evidence, Judgement& judgement) {
  if (evidence.oracle.missing.empty()) {
    judgement.Skipped("the checkpoint lacks no key of the model");
    return;
  }
  for (const PhaseEvidence* phase : LoadPhases(evidence, judgement)) {
    for (const std::string& stage : FinalStages(*phase, judgement)) {
      for (const auto& [name, tensor] : evidence.oracle.missing) {
        // A tied partner that the checkpoint does have supplies the value.
        if (ExpectedOf(evidence.oracle, name).from == "the checkpoint") continue;
        CheckTensor(evidence, *phase, stage, name, tensor, judgement);
      }
    }
  }
}

const PropertyRegistration kRegistration{{
    .id = "loading.missing_alike",
    .claim = "Keys that the checkpoint lacks hold their initial value, the same on every rank.",
    .needs = "values, plain, resume: ready, restored",
    .tolerance = "bit-exact: a pure function of seed, name and index",
    .source = "huggingface/transformers#28245, pytorch/torchtitan#166; src/load/initial_value.h",
    .killed_by = {"loading.init_seed_of_rank", "loading.missing_not_initialised"},
    .check = Check,
}};

}  // namespace
}  // namespace shardproof
